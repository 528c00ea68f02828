package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// maxReasons bounds of how many masters "why" tells different reasons.
const maxReasons = 3

// QueueServer is one master of resqued that works a queue, or all foreign workers that do.
type QueueServer struct {
	// Worker is the name of the master; "other workers" of foreign ones.
	Worker string `json:"worker"`
	State  string `json:"state"`
	// Place is that of the queue among those that the master works, from 1, the first to be
	// looked at; 0 = not known.
	Place int `json:"place"`
	// Free counts the threads without a job that may take one, Threads all of them.
	Free    int `json:"free"`
	Threads int `json:"threads"`
	// Busy are the jobs of this queue that run there, Cap the most that may; 0 = any number.
	Busy int `json:"busy"`
	Cap  int `json:"cap"`
	// Why says why none of the queue's jobs is taken now; empty = one may be, or it is not
	// known.
	Why string `json:"why"`
}

// otherWorkers is the name of all foreign workers as a QueueServer.
const otherWorkers = "other workers"

// crew is what one living master could work with.
type crew struct {
	name, state   string
	spec          selector.Spec
	free, threads int
	busy          map[string]int // running jobs by queue
	order         []selector.Choice
	place         map[string]int // of a queue in order
}

// crews returns the living masters with their processes, by name, as far as Redis knows them.
func crews(masters map[string]map[string]string, procs []store.ProcInfo, queues []store.QueueInfo) []*crew {
	now := time.Now().UnixMilli()
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.Name
	}
	slices.Sort(names)
	byID := map[string]*crew{}
	orders := map[string][]selector.Choice{} // a fleet has few different lists
	for id, fields := range masters {
		list := fields["queues"]
		c := &crew{name: masterName(id), state: fields["state"], threads: threadsOf(fields), busy: map[string]int{}, place: map[string]int{}}
		spec, _, err := selector.Parse(strings.Split(list, ","), max(1, c.threads))
		if err != nil {
			continue
		}
		c.spec = spec
		key := fmt.Sprint(c.threads) + " " + list // a cap may be a part of the threads
		if _, known := orders[key]; !known {
			orders[key] = spec.Resolve(names)
		}
		c.order = orders[key]
		for i, choice := range c.order {
			c.place[choice.Queue] = i
		}
		byID[id] = c
	}
	for _, p := range procs {
		c := byID[masterOf(p.Proc)]
		if c == nil {
			continue
		}
		for _, job := range p.Running {
			c.busy[job.Queue]++
		}
		if p.LeaseMS >= now && p.Fields["state"] == string(signals.Running) && p.Fields[store.InfoAlone] == "" {
			threads := 0
			_, _ = fmt.Sscan(p.Fields["threads"], &threads)
			c.free += max(0, threads-len(p.Running))
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b *crew) int { return cmp.Compare(a.name, b.name) })
}

// serves returns how the master works a queue; false = it does not.
func (c *crew) serves(queue string, waiting map[string]int64) (QueueServer, bool) {
	place, ok := c.place[queue]
	if !ok {
		return QueueServer{}, false
	}
	s := QueueServer{
		Worker: c.name, State: c.state, Place: place + 1, Free: c.free, Threads: c.threads, Busy: c.busy[queue], Cap: c.order[place].Cap,
	}
	switch {
	case c.state != string(signals.Running):
		s.Why = "its daemon is " + cmp.Or(c.state, "in no known state")
	case c.capped(place):
		s.Why = fmt.Sprintf("capped: %d of %d run", s.Busy, s.Cap)
	case c.free == 0:
		s.Why = fmt.Sprintf("no free thread: %d of %d are busy", c.threads, c.threads)
		for i, before := range c.order[:place] {
			if n := waiting[before.Queue]; n > 0 && !c.capped(i) {
				s.Why = fmt.Sprintf("behind %s with %s: no free thread", wire.Printable(before.Queue, MaxName), Plural(int(n), "job"))
				break
			}
		}
	}
	return s, true
}

// capped reports whether a queue of the order has as many running jobs as it may.
func (c *crew) capped(place int) bool {
	choice := c.order[place]
	return choice.Cap > 0 && c.busy[choice.Queue] >= choice.Cap
}

// strangersOf returns the foreign workers that serve a queue, as one.
func strangersOf(workers []store.WorkerInfo, queue string) (QueueServer, bool) {
	s := QueueServer{Worker: otherWorkers, State: WorkerBusy}
	for _, w := range workers {
		name, err := wire.ParseWorkerID(w.ID)
		if err != nil || name.Ours || !selector.MatchAny(plainPatterns(name.Queues), queue) {
			continue
		}
		n := max(1, name.Processes*name.Threads)
		s.Threads += n
		if w.Working == "" {
			s.Free, s.State = s.Free+n, WorkerIdle
		} else if n > 1 {
			s.Free += n - 1 // it reports one of its jobs
		}
	}
	if s.Threads > 0 && s.Free == 0 {
		s.Why = fmt.Sprintf("no free worker: %d of %d are busy", s.Threads, s.Threads)
	}
	return s, s.Threads > 0
}

// explain finds out why the jobs of a queue wait, as far as Redis knows. Waiting has the
// queues whose jobs may be taken.
func (v *Queue) explain(q store.QueueInfo, crews []*crew, workers []store.WorkerInfo, waiting map[string]int64) {
	for _, c := range crews {
		if s, ok := c.serves(q.Name, waiting); ok {
			v.Servers = append(v.Servers, s)
		}
	}
	if s, ok := strangersOf(workers, q.Name); ok {
		v.Servers = append(v.Servers, s)
	}
	switch v.State {
	case QueueBroken:
		v.Why = "its key is no list"
		return
	case QueuePaused:
		v.Why = "paused by " + strings.Join(q.PausedBy, " and ")
		return
	case QueueOrphan:
		v.Why = "no worker has it among its queues"
		return
	case QueueStarved:
		v.Why = fmt.Sprintf("locked: %s put back when last tried", Plural(int(q.Size), "job"))
		return
	}
	switch {
	case q.Size == 0 && q.Suspects > 0 && len(v.Servers) > 0:
		v.Why = Plural(int(q.Suspects), "suspect") + ", each to run alone"
	case q.Size > 0:
		v.Why = whyOf(v.Servers)
	}
}

// whyOf joins the reasons of all that serve a queue; "" if one of them may take a job.
func whyOf(servers []QueueServer) string {
	var reasons []string
	who := map[string][]string{}
	for _, s := range servers {
		if s.Why == "" {
			return ""
		}
		if who[s.Why] == nil {
			reasons = append(reasons, s.Why)
		}
		who[s.Why] = append(who[s.Why], s.Worker)
	}
	if len(reasons) < 2 {
		return strings.Join(reasons, "")
	}
	for i, reason := range reasons {
		if i == maxReasons {
			return strings.Join(reasons[:i], "; ") + fmt.Sprintf("; and %d more", len(reasons)-i)
		}
		at := wire.Printable(who[reason][0], MaxName)
		if n := len(who[reason]); n > 1 {
			at = Plural(n, "daemon")
		}
		reasons[i] = fmt.Sprintf("%s (%s)", reason, at)
	}
	return strings.Join(reasons, "; ")
}
