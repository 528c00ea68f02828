package pages

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
)

const (
	perPage      = 100
	shortList    = 8
	perWorkers   = 60 // processes
	jobsInRow    = 20 // of a process
	foreignShown = 100
)

// Sampled is the dashboard's last sample, each part with its error.
type Sampled struct {
	Queues   Widget[[]*view.Queue]
	Workers  Widget[[]*view.Worker]
	Jobs     Widget[[]*view.Job]
	Stats    Widget[*view.Stats]
	Findings Widget[[]view.Finding]
	Trends   *Trends
}

// window returns a page of a list and its pager. The parameter from is its offset.
func window[T any](f *Frame, path string, query url.Values, all []T, per int) ([]T, Pager) {
	from, _ := strconv.Atoi(query.Get("from"))
	from = min(max(from, 0), max(0, (len(all)-1)/per*per))
	to := min(from+per, len(all))
	at := func(n int) template.URL {
		q := url.Values{}
		maps.Copy(q, query)
		q.Del("from")
		if n > 0 {
			q.Set("from", strconv.Itoa(n))
		}
		if len(q) == 0 {
			return f.Path(path)
		}
		return template.URL(f.Prefix + path + "?" + q.Encode()) //nolint:gosec // escaped
	}
	if len(all) <= per {
		return all, Pager{}
	}
	p := Pager{Text: fmt.Sprintf("%s–%s of %s", view.Grouped(int64(from+1)), view.Grouped(int64(to)), view.Grouped(int64(len(all))))}
	if from > 0 {
		p.First, p.Prev = at(0), at(max(0, from-per))
	}
	if to < len(all) {
		p.Next, p.Last = at(to), at((len(all)-1)/per*per)
	}
	return all[from:to], p
}

func (s *Sampled) row(q *view.Queue) QueueRow {
	r := QueueRow{Queue: q, Spark: s.Trends.Queue(q.Queue)}
	masters, first, others := q.Masters()
	switch {
	case masters > 0:
		r.ServedBy = view.Plural(masters, "master")
		if masters == 1 {
			r.ServedBy = first
		}
		if others {
			r.ServedBy += " and others"
		}
	case others:
		r.ServedBy = "other workers"
	}
	if !others { // foreign workers' rates are unknown
		r.In, r.Out = s.Trends.Rates(q.Queue)
	}
	return r
}

func oldest(q *view.Queue) int64 {
	if q.OldestS == nil {
		return -1
	}
	return *q.OldestS
}

// queueStates are the states of a queue that need attention, in the order of their display.
var queueStates = []string{view.QueueBroken, view.QueueOrphan, view.QueueStarved, view.QueuePaused, view.QueueUnknown, view.QueueIdle}

// of sets the page's time to that of the part that it shows, from which ages are counted.
func (f *Frame) of(at time.Time) {
	if f.Made = f.Now; !at.IsZero() {
		f.Now = at.In(f.Now.Location())
	}
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// QueuesOf is the list of queues with a filter, a state, an order and an offset.
func QueuesOf(f Frame, s *Sampled, query url.Values) *Queues {
	f.of(s.Queues.At)
	p := &Queues{Frame: f, Filter: query.Get("name"), State: query.Get("state"), Sort: cmp.Or(query.Get("sort"), "size")}
	p.Rows = Made([]QueueRow(nil), s.Queues)
	if !s.Queues.OK {
		return p
	}
	counts := map[string]int{}
	var picked []*view.Queue
	for _, q := range s.Queues.Data {
		p.Total++
		counts[q.State]++
		if (p.State == "" || q.State == p.State) && contains(q.Queue, p.Filter) {
			picked = append(picked, q)
		}
	}
	p.States = append(p.States, Link{"all " + view.Grouped(int64(p.Total)), p.With("/queues", "name", p.Filter, "sort", query.Get("sort")), p.State == ""})
	for _, state := range queueStates {
		if counts[state] > 0 {
			p.States = append(p.States, Link{state + " " + view.Grouped(int64(counts[state])), p.With("/queues", "name", p.Filter, "state", state, "sort", query.Get("sort")), p.State == state})
		}
	}
	if len(p.States) == 1 && p.State == "" {
		p.States = nil
	}
	slices.SortStableFunc(picked, func(a, b *view.Queue) int {
		switch p.Sort {
		case "name":
			return strings.Compare(a.Queue, b.Queue)
		case "oldest":
			return cmp.Or(cmp.Compare(oldest(b), oldest(a)), strings.Compare(a.Queue, b.Queue))
		case "busy":
			return cmp.Or(cmp.Compare(b.Busy, a.Busy), strings.Compare(a.Queue, b.Queue))
		}
		return cmp.Or(cmp.Compare(b.Waiting(), a.Waiting()), strings.Compare(a.Queue, b.Queue))
	})
	picked, p.Pager = window(&p.Frame, "/queues", query, picked, perPage)
	for _, q := range picked {
		p.Rows.Data = append(p.Rows.Data, s.row(q))
	}
	return p
}

// contains reports whether a name, or its displayed form, contains a part in any case.
func contains(name, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(name), strings.ToLower(part)) || strings.Contains(text(name, 0), part)
}

// QueueOf is the page of a queue, or nil. The caller reads its waiting jobs.
func QueueOf(f Frame, s *Sampled, name string) *Queue {
	f.of(s.Queues.At)
	p := &Queue{Frame: f, Name: name}
	p.Queue = Made(QueueRow{}, s.Queues)
	if !s.Queues.OK {
		return p
	}
	i := slices.IndexFunc(s.Queues.Data, func(q *view.Queue) bool { return q.Queue == name })
	if i < 0 {
		return nil
	}
	p.Queue.Data = s.row(s.Queues.Data[i])
	p.Chart = Read(s.Trends.Length(name), s.Queues.At)
	return p
}

// OverviewOf is the first page. Queues that need attention come before the longest ones.
func OverviewOf(f Frame, s *Sampled) *Overview {
	f.of(latest(s.Queues.At, s.Workers.At, s.Jobs.At))
	p := &Overview{Frame: f, Stats: s.Stats}
	p.Stats.Lacks = nil // Unknown shows it
	p.Attention = Made(NeedsAttention(s.Findings.Data), s.Findings)
	p.Chart = Read(s.Trends.Flow(), f.Now)
	p.Locks = Made(view.LocksHeld(s.Jobs.Data), s.Jobs)
	p.Queues = Made([]QueueRow(nil), s.Queues)
	p.Running = s.Jobs
	queues := slices.Clone(s.Queues.Data)
	slices.SortStableFunc(queues, func(a, b *view.Queue) int {
		return cmp.Or(cmp.Compare(b.Waiting(), a.Waiting()), cmp.Compare(b.Busy, a.Busy), strings.Compare(a.Queue, b.Queue))
	})
	const shown = 2 * shortList
	if p.MoreQueues = max(0, len(queues)-shown); p.MoreQueues > 0 {
		queues = queues[:shown]
	}
	for _, q := range queues {
		p.Queues.Data = append(p.Queues.Data, s.row(q))
	}
	if p.MoreRunning = max(0, len(p.Running.Data)-shortList); p.MoreRunning > 0 {
		p.Running.Data = p.Running.Data[:shortList]
	}
	return p
}

// JobsOf is the list of running jobs with a filter and an offset.
func JobsOf(f Frame, s *Sampled, query url.Values, c Filter, m *filter.Matcher) *Jobs {
	f.of(s.Jobs.At)
	p := &Jobs{Frame: f, Filter: c}
	p.Rows = Made([]*view.Job(nil), s.Jobs)
	if !s.Jobs.OK {
		return p
	}
	p.Total = len(s.Jobs.Data)
	picked, _ := view.Running(s.Jobs.Data, m, 0)
	p.Rows.Data, p.Pager = window(&p.Frame, "/jobs", query, picked, perPage)
	return p
}

// JobOf is the page of a running job, found by any of its names.
func JobOf(f Frame, s *Sampled, name string) (*Job, error) {
	f.of(s.Jobs.At)
	p := &Job{Frame: f, Name: name}
	p.Job = Made((*view.Job)(nil), s.Jobs)
	if !s.Jobs.OK {
		return p, nil
	}
	found, err := view.FindJobs(s.Jobs.Data, []string{name})
	if err != nil {
		return nil, err
	}
	job := *found[0]
	job.Detail()
	p.Name, p.Title = job.Name, job.Class
	p.Job.Data = &job
	for _, w := range s.Workers.Data {
		for _, proc := range w.Processes {
			if proc.Proc != job.Run.Proc || job.Run.Proc == "" {
				continue
			}
			for _, other := range proc.Jobs {
				if other.ID != job.ID && other.ID != job.Name {
					p.Siblings = append(p.Siblings, other)
				}
			}
		}
	}
	return p, nil
}

// WorkersOf is the tree of workers with a filter and an offset.
func WorkersOf(f Frame, s *Sampled, query url.Values) *Workers {
	f.of(s.Workers.At)
	p := &Workers{Frame: f, Filter: query.Get("name")}
	p.Hosts = Made([]WorkerHost(nil), s.Workers)
	if !s.Workers.OK {
		return p
	}
	type place struct {
		worker *view.Worker
		proc   int // -1: a master without processes
	}
	var places []place
	for _, w := range s.Workers.Data {
		p.Threads += w.Threads
		p.Busy += w.Busy
		p.Processes += len(w.Processes)
		if !contains(w.Worker, p.Filter) && !contains(w.Queues, p.Filter) {
			continue
		}
		if w.Kind == view.KindForeign {
			if len(p.Foreign) < foreignShown {
				p.Foreign = append(p.Foreign, w)
			}
			continue
		}
		if len(w.Processes) == 0 {
			places = append(places, place{w, -1})
		}
		for i := range w.Processes {
			places = append(places, place{w, i})
		}
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Or(strings.Compare(a.worker.Host, b.worker.Host), strings.Compare(a.worker.Worker, b.worker.Worker))
	})
	places, p.Pager = window(&p.Frame, "/workers", query, places, perWorkers)
	for _, at := range places {
		host := last(&p.Hosts.Data, func(h *WorkerHost) bool { return h.Host == at.worker.Host }, WorkerHost{Host: at.worker.Host})
		m := last(&host.Masters, func(m *WorkerMaster) bool { return m.Worker == at.worker }, s.master(at.worker))
		if at.proc >= 0 {
			s.put(m, at.worker.Processes[at.proc])
		}
	}
	return p
}

// last returns the last element if it matches, else appends another and returns that.
func last[T any](list *[]T, is func(*T) bool, other T) *T {
	if n := len(*list); n > 0 && is(&(*list)[n-1]) {
		return &(*list)[n-1]
	}
	*list = append(*list, other)
	return &(*list)[len(*list)-1]
}

func (s *Sampled) master(w *view.Worker) WorkerMaster {
	return WorkerMaster{Worker: w, Orders: w.State != view.WorkerStale && w.State != view.WorkerGhost && w.State != view.WorkerBroken}
}

func (s *Sampled) put(m *WorkerMaster, proc view.Process) {
	if len(proc.Jobs) > jobsInRow {
		proc.Jobs = proc.Jobs[:jobsInRow]
	}
	r := ProcessRow{Process: proc, Rate: s.Trends.Rate(proc.Proc), RSSRing: s.Trends.Memory(proc.Proc)}
	if proc.Alone {
		m.Suspects = append(m.Suspects, r)
	} else {
		m.Rows = append(m.Rows, r)
	}
}

// WorkerOf is the page of a master, nil if there is no such master.
func WorkerOf(f Frame, s *Sampled, name string) *Worker {
	f.of(s.Workers.At)
	p := &Worker{Frame: f, Name: name}
	p.Master = Made(WorkerMaster{}, s.Workers)
	if !s.Workers.OK {
		return p
	}
	for _, w := range s.Workers.Data {
		if w.Worker == name {
			m := s.master(w)
			for _, proc := range w.Processes {
				s.put(&m, proc)
			}
			p.Master.Data = m
			return p
		}
	}
	return nil
}
