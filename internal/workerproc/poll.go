package workerproc

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
)

// Modes of the poller, set by the loop.
const (
	pollOff    = iota
	pollSeldom // like pollQuiet, but rarely
	pollQuiet  // report only work
	pollAlways
)

const (
	// awake is how long a process that has worked polls at every interval although it is not the
	// poller. It is longer than two reports to the master, which chooses a poller among
	// processes with an idle thread.
	awake = 5 * time.Second
	// asleep is how often other processes look, in case the poller hangs. Busy ones look, too,
	// because a look also finds suspects.
	asleep = time.Second
	// spread bounds the factor by which the time between looks grows in a fleet, mostSpread in a
	// very large one; longAsleep bounds that time.
	spread, mostSpread, longAsleep = 4, 32, 10 * time.Second
	// askers is how many masters would ask once in an interval, so that one always asks soon.
	askers = 8
)

// pollResult is the result of one look at all queues.
type pollResult struct {
	// reasons has the queues that hold jobs. waiting are the queues to ask for jobs, sorted.
	// any: a job of one of ours may start. locked: one of ours holds only locked jobs.
	reasons     store.Reasons
	waiting     []string
	any, locked bool
	// known is how many queues there are; 0 if only named ones were looked at.
	known int
	// suspects counts the jobs in our queues that have to run alone.
	suspects int
	// later: a job of ours waits for its time; only set with until-empty.
	later bool
	// masters is the number of masters; 0 = not asked for.
	masters int
	// shared: another process looked a moment earlier and found nothing.
	shared bool
	// sends is how many exchanges had been sent before the look, which began at began.
	sends int64
	began time.Time
	err   error
}

// poller looks for queues with jobs. Its own goroutine executes run; the loop calls look, hurry,
// set, beCalm and pollForAll. The fields that both use are atomic or channels; the others do not
// change.
type poller struct {
	*shared
	helpers *sync.WaitGroup // the waits of the waker
	sends   func() int64
	waits   int // how many queues the waker waits for at a time

	results chan pollResult // to the loop
	pushed  chan string     // to the loop: a queue that was empty now holds something
	now     bell            // look now
	calm    bell            // the loop has nothing to do, and unarmed is set
	turned  bell            // what the waker may do has changed

	mode    atomic.Int32
	forAll  atomic.Bool // the master makes this process look at every interval
	unarmed atomic.Bool // the waker wants to know when the loop is calm
	// worked is when the process last had work, since life.started.
	worked atomic.Int64

	covered int // consecutive looks after which the waker waited for all queues
	// spread is the factor on the time between looks because other processes look, too; at least
	// 1.
	spread  float64
	masters int // as of the last look that returned it
}

func newPoller(s *shared, sends func() int64, helpers *sync.WaitGroup) *poller {
	return &poller{
		shared: s, sends: sends, helpers: helpers, waits: cmp.Or(s.d.Waits, store.MaxWaits), spread: 1,
		results: make(chan pollResult, 1), pushed: make(chan string, 1), now: newBell(), calm: newBell(), turned: newBell(),
	}
}

// run looks at each interval as set by the loop, and at once when asked or woken by a push. In
// an idle process only this goroutine runs: while nothing waits, even the loop sleeps.
func (p *poller) run(work context.Context) {
	var fixed []string
	for _, c := range p.cfg.Queues.Resolve(nil) {
		fixed = append(fixed, c.Queue)
	}
	timer := time.NewTimer(p.cfg.Interval)
	defer timer.Stop()
	w := newWaker(work, p)
	defer w.close()
	var last pollResult
	var looked time.Time
	for {
		asked, fresh := false, last.any || last.locked
		select {
		case <-work.Done():
			return
		case <-p.now:
			asked = true
		case e := <-w.ended:
			if !w.took(e) {
				continue
			}
			// The loop tries for the job at once; when it is idle again, the waker asks for a
			// look.
			p.covered, p.spread = 0, 1
			timer.Reset(p.pause())
			select {
			case p.pushed <- e.queue:
			case <-work.Done():
				return
			}
			continue
		case <-p.calm:
			w.idle()
			continue
		case <-p.turned:
			w.turned()
			continue
		case <-w.timer.C:
			w.rested()
			fresh = true
		case <-timer.C:
		}
		if asked {
			p.covered, p.spread = 0, 1
		}
		timer.Reset(p.pause())
		mode := p.mode.Load()
		if !asked && (mode == pollOff || mode == pollSeldom && time.Since(looked) < asleep) {
			continue
		}
		looked = time.Now()
		r := p.lookAround(work, fixed, fresh || asked)
		p.spreads(r.shared, r.masters)
		if covered := w.saw(r) && !r.any && !r.locked; covered && !asked {
			p.covered++
		} else {
			p.covered = 0
		}
		if asked || mode == pollAlways || r.any || last.any || r.suspects+last.suspects > 0 || r.err != nil {
			select {
			case p.results <- r:
			case <-work.Done():
				return
			}
		}
		last = r
	}
}

// pause is the time until the next look. It is a twentieth shorter than the interval, so that a
// job found then begins within it. While the process is idle and the waker waits for all
// existing queues, looks only find the unusual, such as a new queue or the end of a pause. Then
// the time doubles up to asleep.
//
// In a fleet, an answer that found nothing counts for all processes for part of an interval. A
// process that keeps getting shared answers asks less often; one that has to look itself asks
// more often again. So a fleet looks about twice per interval and asks a few times as often,
// whatever its size: of 500 daemons, each asks every three seconds. But a process that has found
// nothing for all may take a job the next moment and then have no thread for another. So an
// interval that was set is kept, as is that of a process which has just worked.
func (p *poller) pause() time.Duration {
	idle := time.Since(p.life.started)-time.Duration(p.worked.Load()) >= awake
	if p.cfg.StretchInterval && p.covered > 0 && idle && !p.cfg.UntilEmpty && p.cfg.Interval < asleep {
		return min(p.cfg.Interval<<min(p.covered, 16), asleep-asleep/20)
	}
	pause := max(p.cfg.Interval, asleep)
	if p.forAll.Load() || p.cfg.UntilEmpty || !idle {
		pause = p.cfg.Interval - p.cfg.Interval/20
	}
	if p.cfg.StretchInterval && idle {
		pause = max(pause, min(time.Duration(float64(pause)*p.spread), longAsleep))
	}
	return pause
}

// spreads updates spread: shared says whether the last look was another process's; masters is 0
// if unknown.
func (p *poller) spreads(shared bool, masters int) {
	if masters > 0 {
		p.masters = masters
	}
	if shared {
		p.spread = min(p.spread*5/4, float64(min(max(spread, p.masters/askers), mostSpread)))
	} else {
		p.spread = max(p.spread/2, 1)
	}
}

// hurry makes the process look at every interval for a while.
func (p *poller) hurry() { p.worked.Store(int64(time.Since(p.life.started))) }

func (p *poller) look() { p.now.ring() }

// lookAround asks for all queues, in parts if there are very many.
func (p *poller) lookAround(work context.Context, fixed []string, fresh bool) pollResult {
	r := pollResult{sends: p.sends(), began: time.Now()}
	ask := store.PollRequest{All: p.cfg.Queues.Dynamic() && !p.id.alone, Fixed: fixed, Fresh: fresh, Share: min(p.cfg.Interval, asleep) * 2 / 5}
	if p.cfg.UntilEmpty {
		// Before the queues: a job that comes back in between is seen there.
		later, err := p.d.Store.DelayedQueues(work)
		if err != nil {
			r.err = err
			return r
		}
		r.later = p.ours(later)
		ask.Share, ask.Whole = 0, true // it leaves if it finds nothing
	}
	var suspects map[string]int
	moved := false
	for {
		reply, err := p.d.Store.Poll(work, ask)
		if err != nil {
			r.err = err
			return r
		}
		if reply.Due && !moved {
			// The master moves them, too, and logs failures. With this move it can look less
			// often.
			caller := store.Helper // helpers take turns
			if p.cfg.UntilEmpty {
				caller = "" // it must leave nothing when it leaves
			}
			due, _ := p.d.Store.MoveDue(work, caller, p.cfg.Unique)
			p.d.Stats.Count(statsd.Duplicate, due.Dropped)
			moved, ask.Cursor, ask.Fresh, r.reasons = true, "", true, nil
			continue
		}
		for queue, why := range reply.Reasons {
			if r.reasons == nil {
				r.reasons = store.Reasons{}
			}
			if r.reasons[queue] != store.Free { // a queue's lines are in the first part, its own jobs may be in a later one
				r.reasons[queue] = why
			}
		}
		suspects, r.known, r.shared, r.masters = reply.Suspects, reply.Known, reply.Shared, reply.Masters
		if ask.Cursor = reply.Cursor; ask.Cursor == "" || ask.Cursor == "0" {
			break
		}
	}
	locked := r.reasons.With(store.Locked, store.Lined)
	if r.waiting = r.reasons.With(store.Free); p.id.alone {
		r.waiting = slices.Sorted(maps.Keys(suspects))
	}
	r.any, r.locked, r.suspects = p.ours(r.waiting), p.ours(locked), countSuspects(p.cfg.Queues, suspects)
	if !p.id.alone {
		r.waiting = append(r.waiting, locked...) // the end of any job may free one
		slices.Sort(r.waiting)
	}
	return r
}

// ours reports whether this process works one of the queues.
func (p *poller) ours(queues []string) bool {
	return len(queues) > 0 && slices.ContainsFunc(p.cfg.Queues.Resolve(queues), func(c selector.Choice) bool {
		return slices.Contains(queues, c.Queue)
	})
}

// set sets the mode, and wakes the waker when it becomes or was pollOff.
func (p *poller) set(mode int32) {
	if old := p.mode.Swap(mode); old != mode && (old == pollOff || mode == pollOff) {
		p.turned.ring()
	}
}

// beCalm tells the waker that the loop has nothing to do, if it wants to know.
func (p *poller) beCalm() {
	if p.unarmed.Load() {
		p.calm.ring()
	}
}

func (p *poller) pollForAll(on bool) {
	p.forAll.Store(on)
	p.turned.ring()
}
