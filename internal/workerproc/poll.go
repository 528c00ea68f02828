package workerproc

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
)

// What the poller shall do; the loop sets it.
const (
	pollOff    = iota
	pollSeldom // as pollQuiet, but now and then
	pollQuiet  // speak up only when there is something to do
	pollAlways
)

const (
	// awake is how long a process that has worked looks for jobs at every interval
	// although it is not the poller. It is longer than two reports to the master,
	// who finds a poller among those that have an idle thread.
	awake = 5 * time.Second
	// asleep is how often the others look: only in case the poller hangs. Those
	// that are busy do, too: a look also finds suspects.
	asleep = time.Second
	// spread bounds how much longer the time between two looks gets in a fleet, mostSpread in a very large one, and
	// longAsleep that time.
	spread, mostSpread, longAsleep = 4, 32, 10 * time.Second
	// askers is how many masters would ask once in an interval, so that one always does soon.
	askers = 8
)

// pollResult is what one look at all queues has found.
type pollResult struct {
	// reasons has the queues that hold jobs. waiting are those to ask for jobs, sorted; any says that
	// a job of one of ours may start, locked that one of ours holds locked jobs alone.
	reasons     store.Reasons
	waiting     []string
	any, locked bool
	// known is how many queues there are, 0 if only named ones were looked at.
	known int
	// suspects counts the jobs of our queues that have to run alone.
	suspects int
	// later: a job of ours waits for its time; only looked for until empty.
	later bool
	// masters is how many there are; 0 = it was not asked for.
	masters int
	// shared: it was the look of another process, a moment before, which has found nothing.
	shared bool
	// sends is how many exchanges had been sent before the look, which was at began.
	sends int64
	began time.Time
	err   error
}

// pollStore is what looking for jobs asks of Redis.
type pollStore interface {
	Poll(ctx context.Context, r store.PollRequest) (store.PollReply, error)
	MoveDue(ctx context.Context, caller string, unique func(queue string) bool) (store.Due, error)
	DelayedQueues(ctx context.Context) ([]string, error)
}

// poller looks for queues with jobs. A goroutine of its own executes run; the loop calls the
// methods look, stir, set, beCalm and pollForAll. The fields that both use are atomic or
// channels; the others do not change.
type poller struct {
	cfg     pollerConfig
	store   pollStore
	stats   Stats
	log     *zap.Logger
	helpers *sync.WaitGroup // the waits of the waker
	// sends returns how many exchanges have been sent.
	sends func() int64

	results chan pollResult // to the loop
	pushed  chan string     // to the loop: a queue that had been empty holds something
	now     bell            // look now
	calm    bell            // the loop has nothing to do, and unarmed is set
	turned  bell            // what the waker may do has changed

	mode    atomic.Int32
	forAll  atomic.Bool // the master has this process look at every interval
	unarmed atomic.Bool // the waker wants to know when the loop is calm
	// worked is when the process last did something, since cfg.started.
	worked atomic.Int64

	covered int // looks in a row after which the waker waited for all queues
	// spread is how much longer the time between two looks is because others look, too: 1 to spread.
	spread  float64
	masters int // as of the last look that has said so
}

// pollerConfig is what the poller has to know of its process.
type pollerConfig struct {
	// forwarder is its name where callers take turns to move delayed jobs: store.Helper, or "" = it moves them in any case.
	forwarder  string
	interval   time.Duration
	untilEmpty bool
	alone      bool
	queues     selector.Spec
	unique     func(queue string) bool
	started    time.Time
	// openWaiter, waits and fleetWaits are those of Deps.
	openWaiter        func(waits int) (Waiter, error)
	waits, fleetWaits int
	// stretch: the interval was not set, and may grow, see pause.
	stretch bool
}

func newPoller(cfg pollerConfig, s pollStore, stats Stats, sends func() int64, helpers *sync.WaitGroup, log *zap.Logger) *poller {
	return &poller{
		cfg: cfg, store: s, stats: stats, sends: sends, helpers: helpers, log: log, spread: 1,
		results: make(chan pollResult, 1), pushed: make(chan string, 1), now: newBell(), calm: newBell(), turned: newBell(),
	}
}

// run looks at each interval as the loop has set it, and at once when asked or woken by a
// push. An idle process is this goroutine alone: as long as nothing waits, not even the loop
// wakes up.
func (p *poller) run(work context.Context) {
	var fixed []string
	for _, c := range p.cfg.queues.Resolve(nil) {
		fixed = append(fixed, c.Queue)
	}
	timer := time.NewTimer(p.cfg.interval)
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
			// The loop tries for the job at once; when it has nothing to do any more, the waker asks for a look.
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

// pause is the time until the next look. An interval is a twentieth shorter than it is
// called, so that a job that is found then has begun within it. While the process is idle and
// the waker waits for all queues there are, so that only the unusual is left to be found by
// looking (a queue that is new, or whose pause has ended), the time doubles up to asleep.
//
// Where others ask the same, an answer that has found nothing counts for all of them for a part
// of an interval. Who gets such answers only asks less often, who has to look itself more often
// again: so the looks of a fleet are about one in half an interval, and its questions a few times
// as many, however many daemons there are: of 500 each asks every three seconds. But who has found nothing for all may take a job the next
// moment, and then have no thread for another. So an interval that was set is kept, and so is that of
// a process which has just worked.
func (p *poller) pause() time.Duration {
	idle := time.Since(p.cfg.started)-time.Duration(p.worked.Load()) >= awake
	if p.cfg.stretch && p.covered > 0 && idle && !p.cfg.untilEmpty && p.cfg.interval < asleep {
		return min(p.cfg.interval<<min(p.covered, 16), asleep-asleep/20)
	}
	pause := max(p.cfg.interval, asleep)
	if p.forAll.Load() || p.cfg.untilEmpty || !idle {
		pause = p.cfg.interval - p.cfg.interval/20
	}
	if p.cfg.stretch && idle {
		pause = max(pause, min(time.Duration(float64(pause)*p.spread), longAsleep))
	}
	return pause
}

// spreads takes whether the last look was that of another, and how many masters there are, if that is known.
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

// hurry makes the process look for jobs at every interval for a while.
func (p *poller) hurry() { p.worked.Store(int64(time.Since(p.cfg.started))) }

// look makes the poller look now.
func (p *poller) look() { p.now.ring() }

// lookAround asks for all queues, a part at a time if there are very many.
func (p *poller) lookAround(work context.Context, fixed []string, fresh bool) pollResult {
	r := pollResult{sends: p.sends(), began: time.Now()}
	ask := store.PollRequest{All: p.cfg.queues.Dynamic() && !p.cfg.alone, Fixed: fixed, Fresh: fresh, Share: min(p.cfg.interval, asleep) * 2 / 5}
	if p.cfg.untilEmpty {
		// Before the queues: a job that comes back meanwhile is seen there.
		later, err := p.store.DelayedQueues(work)
		if err != nil {
			r.err = err
			return r
		}
		r.later = p.ours(later)
		ask.Share, ask.Whole = 0, true // it leaves by what it finds
	}
	var suspects map[string]int
	moved := false
	for {
		reply, err := p.store.Poll(work, ask)
		if err != nil {
			r.err = err
			return r
		}
		if reply.Due && !moved {
			// The master moves them, too, and logs what keeps it from it. With this move it need
			// not look as often.
			due, _ := p.store.MoveDue(work, p.cfg.forwarder, p.cfg.unique)
			p.stats.Count(statsd.Duplicate, due.Dropped)
			moved, ask.Cursor, ask.Fresh, r.reasons = true, "", true, nil
			continue
		}
		for queue, why := range reply.Reasons {
			if r.reasons == nil {
				r.reasons = store.Reasons{}
			}
			if r.reasons[queue] != store.Free { // its lines are in the first part, its own jobs may be in a later one
				r.reasons[queue] = why
			}
		}
		suspects, r.known, r.shared, r.masters = reply.Suspects, reply.Known, reply.Shared, reply.Masters
		if ask.Cursor = reply.Cursor; ask.Cursor == "" || ask.Cursor == "0" {
			break
		}
	}
	locked := r.reasons.With(store.Locked, store.Lined)
	if r.waiting = r.reasons.With(store.Free); p.cfg.alone {
		r.waiting = slices.Sorted(maps.Keys(suspects))
	}
	r.any, r.locked, r.suspects = p.ours(r.waiting), p.ours(locked), countSuspects(p.cfg.queues, suspects)
	if !p.cfg.alone {
		r.waiting = append(r.waiting, locked...) // the end of any job may free one
		slices.Sort(r.waiting)
	}
	return r
}

// ours reports whether this process works one of the queues.
func (p *poller) ours(queues []string) bool {
	return len(queues) > 0 && slices.ContainsFunc(p.cfg.queues.Resolve(queues), func(c selector.Choice) bool {
		return slices.Contains(queues, c.Queue)
	})
}

// set sets what the poller does, and wakes the waker when that begins or ends.
func (p *poller) set(mode int32) {
	if old := p.mode.Swap(mode); old != mode && (old == pollOff || mode == pollOff) {
		p.turned.ring()
	}
}

// beCalm lets the waker know that the loop has nothing to do, if it has asked for that.
func (p *poller) beCalm() {
	if p.unarmed.Load() {
		p.calm.ring()
	}
}

// pollForAll sets whether this process is the poller.
func (p *poller) pollForAll(on bool) {
	p.forAll.Store(on)
	p.turned.ring()
}
