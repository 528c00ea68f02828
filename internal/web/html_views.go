package web

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
	"github.com/resqued/resqued/longjob"
)

const (
	// mostWaited is for how many locks the waiters are read.
	mostWaited = 100
	locksShown = 200
)

func (s *Server) overviewPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "overview", "Overview")
	v := s.sampled(r.Context(), &f)
	p := pages.OverviewOf(f, v)
	links, span, ok := chosen(r, func(pairs ...string) template.URL { return f.With("/", pairs...) }, true, view.Spans[:])
	p.Spans = links
	if ok {
		p.Chart = s.flowOf(r.Context(), span)
	} else if p.Chart.OK {
		p.Chart.Data.Marks = s.marks(r.Context(), p.Chart.Data.From)
	}
	return p, nil
}

func (s *Server) queuesPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "queues", "Queues")
	v := s.sampled(r.Context(), &f)
	return pages.QueuesOf(f, v, r.URL.Query()), nil
}

func (s *Server) queuePage(r *http.Request) (pages.Page, error) {
	name := named(r, "queue")
	f := s.frame(r, "queues", name)
	v := s.sampled(r.Context(), &f)
	p := pages.QueueOf(f, v, name)
	if p == nil {
		v = s.resampled(r.Context(), &f)
		p = pages.QueueOf(f, v, name)
	}
	if p == nil {
		return nil, &view.NotFoundError{Kind: "queue", Name: name}
	}
	q := &query{Request: r}
	c := q.conditions(filter.Waiting)
	p.Filter = c.Filter
	from := q.number("from", 0, 0, 1<<53)
	if q.err != nil {
		return nil, q.err
	}
	// Lengths are kept for a day.
	links, span, ok := chosen(r, func(pairs ...string) template.URL { return f.At("/queues", name, pairs...) }, true, view.Spans[:2])
	if p.Spans = links; ok {
		p.Chart = part(s, r, "chart", func(ctx context.Context) (*pages.Chart, error) {
			now := time.Now()
			levels, err := view.Levels(ctx, s.o.Store, name, now.Add(-span.Length), now)
			return pages.LengthOf(levels, span.Step, now), err
		})
	}
	var total int64
	if p.Queue.OK {
		total = p.Queue.Data.Waiting()
	}
	if from >= total && from > 0 {
		from = max(0, total-pageSize)
	}
	read := part(s, r, "jobs", func(ctx context.Context) (v struct {
		jobs []view.WaitingJob
		next int64
	}, err error,
	) {
		v.jobs, v.next, _, err = s.waiting(ctx, name, c, from, pageSize)
		return v, err
	})
	jobs, next := read.Data.jobs, read.Data.next
	if p.Jobs = pages.Made(jobs, read); !p.Jobs.OK {
		return p, nil
	}
	at := func(n int64) template.URL {
		from := ""
		if n > 0 {
			from = strconv.FormatInt(n, 10)
		}
		return p.At("/queues", name, append(p.Filter.Pairs(), "from", from)...)
	}
	if p.Filter.Any() {
		p.Search = &pages.Search{Scanned: max(next, 0), Total: max(total, next), Found: len(jobs)}
		if next < 0 {
			p.Search.Scanned = p.Search.Total
		} else {
			p.Search.Next = at(next)
		}
		return p, nil
	}
	if total > pageSize || from > 0 {
		p.Pager.Text = view.Grouped(from+1) + "–" + view.Grouped(from+int64(len(jobs))) + " of " + view.Grouped(total)
		if from > 0 {
			p.Pager.First, p.Pager.Prev = at(0), at(max(0, from-pageSize))
		}
		if next >= 0 && next < total {
			p.Pager.Next, p.Pager.Last = at(next), at(max(0, total-pageSize))
		}
	}
	return p, nil
}

func (s *Server) jobsPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "jobs", "Running jobs")
	v := s.sampled(r.Context(), &f)
	q := &query{Request: r}
	c := q.conditions(filter.Running)
	if q.err != nil {
		return nil, q.err
	}
	return pages.JobsOf(f, v, r.URL.Query(), c.Filter, c.Matcher), nil
}

func (s *Server) jobPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "jobs", "Job")
	v := s.sampled(r.Context(), &f)
	p, err := pages.JobOf(f, v, named(r, "id"))
	if err != nil {
		v = s.resampled(r.Context(), &f)
		p, err = pages.JobOf(f, v, named(r, "id"))
	}
	if err != nil {
		return nil, err
	}
	if p.Job.OK {
		p.Events = s.about(r.Context(), p.Job.Data.ID, p.Job.Data.Process)
	}
	return p, nil
}

const (
	// groupTime is how long a request may group failures. If that is not enough, the rest
	// continues in the background, and requests get what there is.
	groupTime = 60 * time.Millisecond
	// groupsOld is the maximum age of groups that are shown.
	groupsOld = time.Minute
)

type grouping struct {
	// turn has an element while a goroutine reads or writes the rest. It is a channel because
	// waiting for it must end with a request's time.
	turn chan struct{}
	part pages.Widget[view.FailureGroups]
	// whole: a request could group all failures; busy: a goroutine continues.
	whole, busy bool
	next        time.Time
}

func (s *Server) workersPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "workers", "Workers")
	v := s.sampled(r.Context(), &f)
	p := pages.WorkersOf(f, v, r.URL.Query())
	events := s.recent(r.Context())
	for i := range p.Hosts.Data {
		for j := range p.Hosts.Data[i].Masters {
			p.Hosts.Data[i].Masters[j].Recall(events, p.Now)
		}
	}
	return p, nil
}

func (s *Server) workerPage(r *http.Request) (pages.Page, error) {
	name := named(r, "worker")
	f := s.frame(r, "workers", name)
	v := s.sampled(r.Context(), &f)
	p := pages.WorkerOf(f, v, name)
	if p == nil {
		v = s.resampled(r.Context(), &f)
		p = pages.WorkerOf(f, v, name)
	}
	if p == nil {
		return nil, &view.NotFoundError{Kind: "worker", Name: name}
	}
	p.Events = s.about(r.Context(), name)
	p.Master.Data.Recall(s.recent(r.Context()), p.Now)
	return p, nil
}

func (s *Server) locksPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "locks", "Locks")
	s.sampled(r.Context(), &f)
	p := &pages.Locks{Frame: f, Kind: r.URL.Query().Get("kind")}
	if p.Kind != "" && !slices.Contains(lockKinds, p.Kind) {
		p.Kind = ""
	}
	p.Kinds = []pages.Link{{Text: "all", URL: f.Path("/locks"), Current: p.Kind == ""}}
	for _, kind := range lockKinds {
		p.Kinds = append(p.Kinds, pages.Link{Text: kind, URL: f.With("/locks", "kind", kind), Current: p.Kind == kind})
	}
	p.Waiting = part(s, r, "waiting", func(ctx context.Context) ([]view.LockedQueue, error) { return view.LockedQueues(ctx, s.o.Store) })
	// Waiters are read only if any job is known to wait.
	somebody := p.Waiting.OK && len(p.Waiting.Data) > 0
	held := part(s, r, "held", func(ctx context.Context) (heldLocks, error) { return s.heldLocks(ctx, p.Kind, somebody) })
	p.Held, p.Cut = pages.Made(held.Data.locks, held), held.Data.cut
	if s.o.DatabaseLocks != nil && p.Kind == "" {
		// PostgreSQL has a patience of its own.
		database := part(s, r.WithContext(withPatience(r.Context())), "database", func(ctx context.Context) (heldLocks, error) {
			locks, all, err := s.databaseLocks(ctx, locksShown)
			return heldLocks{locks, !all}, err
		})
		if errors.Is(database.Err, errNotYet) {
			database.Err = errDatabaseNotYet
		}
		p.Database, p.DatabaseCut = new(pages.Made(database.Data.locks, database)), database.Data.cut
	}
	p.Unique = part(s, r, "unique", func(ctx context.Context) ([]view.UniqueQueue, error) {
		return view.UniqueQueues(ctx, s.o.Store, s.unique)
	})
	return p, nil
}

// heldLocks are locks; cut says that there are more.
type heldLocks struct {
	locks []*view.Lock
	cut   bool
}

func (s *Server) heldLocks(ctx context.Context, kind string, waitedFor bool) (v heldLocks, err error) {
	v.locks, v.cut, err = view.Locks(ctx, s.o.Store, kind, locksShown)
	if waitedFor {
		for _, l := range v.locks[:min(len(v.locks), mostWaited)] {
			l.Waiting, _ = s.o.Store.LockWaiters(ctx, l.Info.Key) // without them if they cannot be read
		}
	}
	return v, err
}

func (s *Server) unique(queue string) bool {
	return s.o.Checks.Unique != nil && s.o.Checks.Unique(queue)
}

func (s *Server) lockPage(r *http.Request) (pages.Page, error) {
	key := named(r, "key")
	f := s.frame(r, "locks", key)
	l, err := found(s, r, "lock", func(ctx context.Context) (*view.Lock, error) {
		l, err := view.FindLock(ctx, s.o.Store, key)
		if err != nil {
			return nil, err
		}
		return l, l.Detail(ctx, s.o.Store)
	})
	if err != nil {
		return nil, err
	}
	return &pages.Lock{Frame: f, Key: key, Lock: l}, nil
}

func (s *Server) longJobsPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "longjobs", "Long jobs")
	s.sampled(r.Context(), &f)
	p := &pages.LongJobs{Frame: f, Status: r.URL.Query().Get("status")}
	states := []longjob.Status{longjob.StatusRunning, longjob.StatusQueued, longjob.StatusPaused, longjob.StatusFailed, longjob.StatusCompleted, longjob.StatusCancelled}
	if !slices.Contains(states, longjob.Status(p.Status)) {
		p.Status = ""
	}
	p.States = []pages.Link{{Text: "all", URL: f.Path("/longjobs"), Current: p.Status == ""}}
	for _, state := range states {
		p.States = append(p.States, pages.Link{Text: string(state), URL: f.With("/longjobs", "status", string(state)), Current: p.Status == string(state)})
	}
	runs := part(s, r, "runs", func(ctx context.Context) (longRuns, error) { return s.longRuns(ctx, longjob.Status(p.Status)) })
	p.Runs, p.More = pages.Made(runs.Data.runs, runs), runs.Data.more
	p.Recurring = part(s, r, "recurring", func(ctx context.Context) ([]view.Recurring, error) {
		return view.RecurringJobs(ctx, longstore.New(s.o.Store.Redis()))
	})
	return p, nil
}

type longRuns struct {
	runs []view.LongJob
	more bool
}

func (s *Server) longRuns(ctx context.Context, status longjob.Status) (v longRuns, err error) {
	v.runs, v.more, err = view.LongJobs(ctx, s.o.Long(ctx), longjob.Filter{Status: status, Limit: pageSize})
	for i := range v.runs {
		one := &v.runs[i] // without its slices if they cannot be read
		one.Timeline, _ = view.EndedSlices(ctx, longstore.New(s.o.Store.Redis()), one.UUID)
	}
	return v, err
}

func (s *Server) longJobPage(r *http.Request) (pages.Page, error) {
	read, err := found(s, r, "run", func(ctx context.Context) (v struct {
		view.LongJob
		lacks error
	}, err error,
	) {
		run, err := view.FindLongJob(ctx, s.o.Long(ctx), named(r, "uuid"))
		if err != nil {
			return v, err
		}
		v.LongJob = view.NewLongJob(ctx, run)
		v.Timeline, v.lacks = view.EndedSlices(ctx, longstore.New(s.o.Store.Redis()), run.UUID)
		return v, nil
	})
	if err != nil {
		return nil, err
	}
	run := read.Data.LongJob
	p := &pages.LongJob{Frame: s.frame(r, "longjobs", run.Class), UUID: run.UUID, Run: pages.Made(run, read)}
	p.Run.Lacks = read.Data.lacks
	return p, nil
}

func (s *Server) schedulePage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "schedule", "Schedule")
	s.sampled(r.Context(), &f)
	q := &query{Request: r}
	c := q.conditions(filter.Delayed)
	p := &pages.Schedule{Frame: f, Filter: c.Filter}
	after := q.delayedPlace()
	if q.err != nil {
		return nil, q.err
	}
	recurring := part(s, r, "recurring", func(ctx context.Context) (v struct {
		all   []*view.Schedule
		lacks error
	}, err error,
	) {
		v.all, _, v.lacks = view.Schedules(ctx, s.o.Store, s.o.Checks.Schedules)
		if v.all == nil {
			return v, v.lacks
		}
		return v, nil
	})
	p.Recurring = pages.Made(recurring.Data.all, recurring)
	p.Recurring.Lacks = recurring.Data.lacks
	delayed := part(s, r, "delayed", func(ctx context.Context) (v struct {
		jobs []view.DelayedJob
		next string
	}, err error,
	) {
		v.jobs, v.next, err = view.Delayed(ctx, s.o.Store, c.Matcher, after, pageSize)
		return v, err
	})
	p.Delayed = pages.Made(delayed.Data.jobs, delayed)
	at := func(cursor string) template.URL {
		return f.With("/schedule", append(p.Filter.Pairs(), "cursor", cursor)...)
	}
	if after.Job != "" {
		p.Pager.Text, p.Pager.First = "Later ones", at("")
	}
	if next := delayed.Data.next; next != "" {
		p.Pager.Text, p.Pager.Next = cmp.Or(p.Pager.Text, "Those that come next"), at(next)
	}
	return p, nil
}

func (s *Server) redisPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "redis", "Redis")
	v := s.sampler.sample(r.Context())
	s.sampled(r.Context(), &f)
	findings := v.Findings
	findings.Data = slices.Clone(findings.Data)
	slices.SortStableFunc(findings.Data, func(a, b view.Finding) int { return weight(b) - weight(a) })
	return &pages.Redis{Frame: f, Server: v.Server, Findings: findings}, nil
}

// weight orders findings by urgency.
func weight(f view.Finding) int {
	switch f.Status {
	case view.FindingFail:
		return 2
	case view.FindingWarn:
		return 1
	}
	return 0
}
