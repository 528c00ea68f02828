package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// maxReasons is how many masters' reasons are listed one by one.
const maxReasons = 3

// QueueServer is one master that works a queue, or all foreign workers that do.
type QueueServer struct {
	// Worker is the master's name, or "other workers".
	Worker string `json:"worker"`
	State  string `json:"state"`
	// Place is the queue's place in the master's order, from 1; 0 = unknown.
	Place int `json:"place"`
	// Free counts the threads that may take a job, Threads all of them.
	Free    int `json:"free"`
	Threads int `json:"threads"`
	// Busy counts this queue's jobs that run there; Cap limits them, 0 = no cap.
	Busy int `json:"busy"`
	Cap  int `json:"cap"`
	// Why is why none of the queue's jobs is taken; empty = one may be, or the reason is unknown.
	Why string `json:"why"`
}

const otherWorkers = "other workers"

// crew is a living master.
type crew struct {
	name, state   string
	free, threads int
	busy          map[string]int // running jobs by queue
	*order
	// ahead is the place of the first queue that holds up those behind it, else the number of
	// queues.
	ahead int
}

// order is the queue order that masters with the same queues share.
type order struct {
	choices []selector.Choice
	place   map[string]int // of a queue in choices
	masters []*crew
}

type fleet struct {
	crews   []*crew
	orders  []*order
	waiting map[string]int64
}

// crews returns the living masters with their processes. Jobs of waiting's queues may be taken.
func crews(masters map[string]map[string]string, procs []store.ProcInfo, queues []store.QueueInfo, waiting map[string]int64) *fleet {
	now := time.Now().UnixMilli()
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.Name
	}
	slices.Sort(names)
	f := &fleet{waiting: waiting}
	byID := map[string]*crew{}
	orders := map[string]*order{} // a fleet has few distinct lists
	for id, fields := range masters {
		if fields[store.FieldUnread] != "" {
			continue
		}
		list := fields["queues"]
		c := &crew{name: masterName(id), state: fields["state"], threads: threadsOf(fields), busy: map[string]int{}}
		key := fmt.Sprint(c.threads) + " " + list // a cap may be a share of the threads
		o, known := orders[key]
		if !known {
			if spec, _, err := selector.Parse(strings.Split(list, ","), max(1, c.threads)); err == nil {
				o = &order{choices: spec.Resolve(names), place: map[string]int{}}
				for i, choice := range o.choices {
					o.place[choice.Queue] = i
				}
				f.orders = append(f.orders, o)
			}
			orders[key] = o
		}
		if o == nil {
			continue
		}
		c.order = o
		byID[id] = c
		f.crews = append(f.crews, c)
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
			threads, _ := strconv.Atoi(p.Fields["threads"])
			c.free += max(0, threads-len(p.Running))
		}
	}
	slices.SortFunc(f.crews, func(a, b *crew) int { return cmp.Compare(a.name, b.name) })
	for _, c := range f.crews {
		c.masters = append(c.masters, c)
		c.ahead = len(c.choices)
		if c.free > 0 {
			continue
		}
		c.ahead = 0
		for c.ahead < len(c.choices) && (waiting[c.choices[c.ahead].Queue] <= 0 || c.capped(c.ahead)) {
			c.ahead++
		}
	}
	return f
}

type servers struct {
	queue string
	fleet *fleet
	// workers counts the threads and foreign workers whose queues include it.
	workers int
	// foreign are the foreign workers, combined; nil = none.
	foreign *QueueServer
}

// of returns the workers of a queue. lists are the workers' queue lists.
func (f *fleet) of(queue string, lists []*queueList) servers {
	s := servers{queue: queue, fleet: f}
	all := QueueServer{Worker: otherWorkers, State: WorkerBusy}
	for _, l := range lists {
		if !selector.MatchAny(l.patterns, queue) {
			continue
		}
		s.workers += l.workers
		all.Threads, all.Free = all.Threads+l.threads, all.Free+l.free
		if l.idle {
			all.State = WorkerIdle
		}
	}
	if all.Threads > 0 {
		if all.Free == 0 {
			all.Why = fmt.Sprintf("no free worker: %d of %d are busy", all.Threads, all.Threads)
		}
		s.foreign = &all
	}
	return s
}

// leastCap returns the least cap that a master has on the queue; nil = no cap.
func (s *servers) leastCap() (least *int) {
	for _, o := range s.fleet.orders {
		if place, ok := o.place[s.queue]; ok {
			if n := o.choices[place].Cap; n > 0 && (least == nil || n < *least) {
				least = &n
			}
		}
	}
	return least
}

// Masters counts and names the daemons that work the queue; others: foreign workers do too.
func (v *Queue) Masters() (n int, first string, others bool) {
	if v.serving.fleet == nil { // the workers are unknown
		return 0, "", false
	}
	for _, o := range v.serving.fleet.orders {
		if _, ok := o.place[v.Queue]; ok {
			n, first = n+len(o.masters), o.masters[0].name
		}
	}
	return n, first, v.serving.foreign != nil
}

// Serving returns the workers of the queue by name, foreign ones last.
func (v *Queue) Serving() (all []QueueServer) {
	if v.Servers != nil || v.serving.fleet == nil {
		return v.Servers
	}
	for _, c := range v.serving.fleet.crews {
		if place, ok := c.place[v.Queue]; ok {
			all = append(all, QueueServer{
				Worker: c.name, State: c.state, Place: place + 1, Free: c.free, Threads: c.threads, Busy: c.busy[v.Queue], Cap: c.choices[place].Cap,
				Why: c.why(place).text(v.serving.fleet.waiting),
			})
		}
	}
	if v.serving.foreign != nil {
		all = append(all, *v.serving.foreign)
	}
	return all
}

// reason is why a master takes no job of a queue; zero = it may take one. Reasons are compared for
// each queue and master, but only a few become text.
type reason struct {
	state         string
	capped        bool
	busy, of      int
	behind, words string
}

func (c *crew) why(place int) reason {
	switch {
	case c.state != string(signals.Running):
		return reason{state: cmp.Or(c.state, "in no known state")}
	case c.capped(place):
		return reason{capped: true, busy: c.busy[c.choices[place].Queue], of: c.choices[place].Cap}
	case c.free > 0:
		return reason{}
	case c.ahead < place:
		return reason{behind: c.choices[c.ahead].Queue}
	}
	return reason{of: c.threads}
}

func (r reason) text(waiting map[string]int64) string {
	switch {
	case r == reason{}:
		return ""
	case r.words != "":
		return r.words
	case r.state != "":
		return "its daemon is " + r.state
	case r.capped:
		return fmt.Sprintf("capped: %d of %d run", r.busy, r.of)
	case r.behind != "":
		return fmt.Sprintf("behind %s with %s: no free thread", wire.Printable(r.behind, MaxName), Plural(int(waiting[r.behind]), "job"))
	}
	return fmt.Sprintf("no free thread: %d of %d are busy", r.of, r.of)
}

// capped reports whether a queue has as many running jobs as its cap allows.
func (c *crew) capped(place int) bool {
	choice := c.choices[place]
	return choice.Cap > 0 && c.busy[choice.Queue] >= choice.Cap
}

// explain sets why the jobs of a queue wait, as far as Redis knows.
func (v *Queue) explain(q store.QueueInfo) {
	switch v.State {
	case QueueBroken:
		v.Why = "its key is not a list"
		return
	case QueuePaused:
		texts := make([]string, len(q.Pauses))
		for i, p := range q.Pauses {
			texts[i] = PauseText(p)
		}
		v.Why = strings.Join(texts, "; ")
		return
	case QueueOrphan:
		v.Why = "no worker has it among its queues"
		return
	case QueueUnknown:
		v.Why = "not known: who works it could not be read"
		return
	case QueueStarved:
		v.Why = "waiting for locks: " + Plural(int(q.Size), "job")
		if len(v.Limits) > 0 {
			v.Why = "waiting for " + limitsText(v.Limits) + ": " + Plural(int(q.Size), "job")
		}
		return
	}
	switch n, _, others := v.Masters(); {
	case q.Size == 0 && q.Suspects > 0 && (n > 0 || others):
		v.Why = Plural(int(q.Suspects), "suspect") + ", each to run alone"
	case q.Size > 0:
		v.Why = v.serving.why()
	}
}

// PauseText says what is paused, by whom, for how long and why.
func PauseText(p *store.Pause) string {
	text := p.Subject()
	if p.By != "" {
		text += " by " + wire.Printable(p.By, 0)
	}
	if !p.Until.IsZero() {
		text += ", for " + Left(max(0, time.Until(p.Until))) + " more"
	}
	if p.Reason != "" {
		text += ": " + wire.Printable(p.Reason, 0)
	}
	return text
}

// why joins the reasons of all workers, "" if one of them may take a job.
func (s *servers) why() string {
	var reasons []reason
	who, count := map[reason]string{}, map[reason]int{}
	add := func(r reason, worker string) {
		if count[r]++; count[r] == 1 {
			reasons, who[r] = append(reasons, r), worker
		}
	}
	for _, c := range s.fleet.crews {
		if place, ok := c.place[s.queue]; ok {
			r := c.why(place)
			if r == (reason{}) {
				return ""
			}
			add(r, c.name)
		}
	}
	if s.foreign != nil {
		if s.foreign.Why == "" {
			return ""
		}
		add(reason{words: s.foreign.Why}, otherWorkers)
	}
	texts := make([]string, 0, maxReasons)
	for i, r := range reasons {
		if i == maxReasons {
			return strings.Join(texts, "; ") + fmt.Sprintf("; and %d more", len(reasons)-i)
		}
		text := r.text(s.fleet.waiting)
		if len(reasons) > 1 {
			at := wire.Printable(who[r], MaxName)
			if n := count[r]; n > 1 {
				at = Plural(n, "daemon")
			}
			text = fmt.Sprintf("%s (%s)", text, at)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}
