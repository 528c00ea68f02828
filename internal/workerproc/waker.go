package workerproc

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

// The waker makes a process try for a job as soon as one is pushed, not at the next interval: a
// connection for each watched queue waits until it holds something. The waker only speeds up the
// poller, which finds everything by itself, and belongs to its goroutine.
//
// A look decides whether to wait for a queue: only for an empty one. For any other (all its jobs
// are locked, or its cap is reached) each wait would be over at once.

// Waiter waits for jobs; *store.Waiter implements it.
type Waiter interface {
	// Await returns true when the queue holds something, false after a while without.
	Await(ctx context.Context, queue string) (bool, error)
	// Queues returns names of existing queues, not all if there are many.
	Queues(ctx context.Context) ([]string, error)
	// Close ends all waits, after their context has ended.
	Close() error
}

const (
	// rest is the time from a wake-up to the next wait. It bounds the cost of wake-ups when jobs
	// come one by one: those that come in between are found together.
	rest = 2 * time.Millisecond
	// awaitLong is the length of a wait that proves that the queue was empty.
	awaitLong = time.Second
	// waitAgainMax bounds the time until the next try after waiting has failed.
	waitAgainMax = 30 * time.Second
	// crowded is that time if the server has no connection to spare.
	crowded = 5 * time.Minute
	// sickFor is how long to ignore a key that is not a list.
	sickFor = 30 * time.Second
)

// waitAgain is the time until the first retry after waiting has failed.
var waitAgain = time.Second

type waked struct {
	queue string
	found bool
	err   error
	since time.Time
	life  int // the waker's life when the wait began
}

type waker struct {
	p    *poller
	work context.Context                 // context of the poller's goroutine
	open func(waits int) (Waiter, error) // nil: off
	log  *zap.Logger

	waiter Waiter // nil: no connections
	waits  context.Context
	cancel context.CancelFunc
	life   int // counts waiters
	ended  chan waked
	armed  map[string]bool // the queues with a wait
	sick   map[string]time.Time
	luck   float64 // decides which processes wait if there are more masters than waits
	watchlist

	// timer triggers a look in order to arm. Nothing is armed before restUntil. The pause
	// between two such looks grows while no job comes of it.
	timer     *time.Timer
	timing    bool
	restUntil time.Time
	pause     time.Duration
	worked    int64 // poller.worked when the pause was determined
	failing   time.Duration
}

func newWaker(work context.Context, p *poller) *waker {
	w := &waker{
		p: p, work: work, open: p.d.OpenWaiter, log: p.log, ended: make(chan waked, max(p.waits, 1)),
		luck: rand.Float64(), armed: map[string]bool{}, sick: map[string]time.Time{}, timer: time.NewTimer(time.Hour), pause: rest,
		watchlist: watchlist{queues: p.cfg.Queues, most: p.waits, limit: p.waits, place: rand.Float64()},
	}
	w.timer.Stop()
	if p.cfg.UntilEmpty || p.id.alone {
		w.open = nil
	}
	return w
}

// mayArm reports whether the process should be woken: it is the poller and has an idle thread.
func (w *waker) mayArm() bool {
	mode := w.p.mode.Load()
	return w.open != nil && w.limit > 0 && w.p.forAll.Load() && (mode == pollQuiet || mode == pollAlways)
}

// turned closes the connections when the process is paused, leaves, or is no longer the poller.
// If all its threads are busy, it keeps its waits but begins no new one.
func (w *waker) turned() {
	if !w.p.forAll.Load() || w.p.mode.Load() == pollOff {
		w.close()
	}
}

func (w *waker) close() {
	w.timer.Stop()
	w.timing = false
	w.p.unarmed.Store(false)
	if w.waiter == nil {
		return
	}
	w.cancel()
	if err := w.waiter.Close(); err != nil {
		w.log.Debug("close the connections of the waker", zap.Error(err))
	}
	w.waiter = nil
	w.life++
	clear(w.armed)
}

// saw takes the result of a look and waits for the empty queues. It reports whether all existing
// queues of ours have a wait under way, so that a job pushed to any of them is noticed at once.
func (w *waker) saw(r pollResult) (covered bool) {
	w.share(r.masters)
	if !w.mayArm() || r.err != nil {
		w.p.unarmed.Store(w.open != nil && w.p.forAll.Load() && !w.timing)
		return false
	}
	w.note(r.waiting)
	now, behind, sick := time.Now(), false, false
	for _, queue := range w.watched(now, r.known) {
		switch {
		case w.armed[queue]:
			continue
		case now.Before(w.sick[queue]):
			sick = true
			continue
		case r.reasons[queue] == store.Paused:
			// The wait would be over at once, in vain. A look finds the end of the pause.
			sick = true
			continue
		}
		empty := r.reasons[queue] == 0 || r.reasons[queue] == store.Lined
		if !empty || now.Before(w.restUntil) || len(w.armed) >= w.limit || !w.arm(queue) {
			behind = true
		}
	}
	w.p.unarmed.Store(behind && !w.timing)
	return !behind && !sick && w.waiter != nil && w.left == 0 && len(r.reasons.With(store.Paused)) == 0 && r.suspects == 0 &&
		(!w.p.cfg.Queues.Dynamic() || w.known == r.known)
}

// share sets how many queues to wait for, by the number of masters: they share the connections
// that the server has for waiting, and each push wakes all waiters. If there are more masters
// than waits, some wait, for one queue each. Small changes in the number of masters are ignored.
func (w *waker) share(masters int) {
	if w.p.d.FleetWaits == 0 || masters == 0 {
		return
	}
	n := w.p.d.FleetWaits / masters
	if n == 0 && w.luck*float64(masters) < float64(w.p.d.FleetWaits) {
		n = 1
	}
	n = min(n, w.p.waits)
	if n >= w.limit && n < w.limit+max(1, w.limit/2) {
		return
	}
	w.close() // its connections are as many as its waits
	w.limit, w.watch = n, nil
}

// watched returns the queues to wait for. If due, it reads the names that globs may match.
func (w *waker) watched(now time.Time, known int) []string {
	if w.stale(now, known) && w.connected() {
		names, err := w.waiter.Queues(w.work)
		if err != nil {
			w.log.Debug("no names of queues to wait for", zap.Error(err))
		}
		w.learn(now, names)
	}
	return w.choose()
}

func (w *waker) connected() bool {
	if w.waiter != nil || w.open == nil {
		return w.waiter != nil
	}
	waiter, err := w.open(w.limit)
	if err != nil {
		w.off(err)
		return false
	}
	w.waiter = waiter
	w.waits, w.cancel = context.WithCancel(w.work)
	return true
}

// off disables the waker when waiting is useless: the poller continues alone.
func (w *waker) off(err error) {
	w.log.Warn("the waker is off: jobs are found at each interval", zap.Error(err))
	w.close()
	w.open = nil
}

func (w *waker) arm(queue string) bool {
	if !w.connected() {
		return false
	}
	w.armed[queue] = true
	waiter, ctx, e := w.waiter, w.waits, waked{queue: queue, since: time.Now(), life: w.life}
	w.p.helpers.Go(func() {
		e.found, e.err = waiter.Await(ctx, queue)
		select {
		case w.ended <- e:
		case <-w.work.Done():
		}
	})
	return true
}

// took takes the end of a wait, and reports whether to try for a job now.
func (w *waker) took(e waked) (found bool) {
	if e.life != w.life {
		return false
	}
	delete(w.armed, e.queue)
	switch {
	case e.found:
		w.failing = 0
		if time.Since(e.since) >= awaitLong {
			w.pause = 0
		}
		w.restUntil = time.Now().Add(w.lengthen())
		w.p.unarmed.Store(true)
		return w.mayArm()
	case e.err == nil: // it was empty until now
		w.failing = 0
		if !w.mayArm() || !slices.Contains(w.watch, e.queue) || !w.arm(e.queue) {
			w.p.unarmed.Store(true)
		}
	case errors.Is(e.err, store.ErrNoQueue):
		w.sick[e.queue] = time.Now().Add(sickFor)
	case errors.Is(e.err, store.ErrNoWaiting):
		w.off(e.err)
	default:
		// Whatever the error, the next connections lead to the server's current place.
		w.log.Debug("the waker has lost its connection", zap.Error(e.err))
		w.close()
		w.failing = min(max(2*w.failing, waitAgain), waitAgainMax)
		if errors.Is(e.err, store.ErrNoRoom) {
			w.failing = crowded // others need the connections more
		}
		w.restUntil = time.Now().Add(w.failing)
		w.schedule(w.failing)
	}
	return false
}

// lengthen returns how long to rest now: briefly if the process has worked since the last time,
// else twice as long as then.
func (w *waker) lengthen() time.Duration {
	if worked := w.p.worked.Load(); worked != w.worked {
		w.worked, w.pause = worked, 0
	}
	w.pause = min(max(2*w.pause, rest), max(w.p.cfg.Interval, asleep))
	return w.pause
}

// idle is called when the loop has nothing to do and a queue is unarmed because it was not empty
// or had just woken us. It may be empty by now.
func (w *waker) idle() {
	w.p.unarmed.Store(false)
	if !w.timing && w.mayArm() {
		w.schedule(max(w.lengthen(), time.Until(w.restUntil)))
	}
}

func (w *waker) schedule(d time.Duration) {
	w.timing = true
	w.timer.Reset(d)
}

// rested is called when the timer has fired, before a look.
func (w *waker) rested() {
	w.timing = false
	w.p.unarmed.Store(true) // until a look says otherwise
}
