package locker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// pollEvery is how often a key is polled. The Ruby gem does not notify releases, a pooler may
// not pass notifications on, and a dead holder releases nothing.
const pollEvery = 500 * time.Millisecond

// listenAgain is the pause before a new connection listens after the last one had listened for
// a while. Notifications in between are missed.
const listenAgain = 10 * time.Millisecond

// hub wakes the waiters of one pool. For a key it wakes one at a time, the one that has waited
// longest since its last turn: queries of the others would only delay the holder's statements.
//
// The first waiter starts it, and the last one to leave stops it.
type hub struct {
	db   database
	refs int           // guarded by hubs.mu
	poll time.Duration // 0 = pollEvery
	stop context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	waiting   map[string][]*waiter // by topic
	listening bool
}

var hubs = struct {
	mu sync.Mutex
	of map[any]*hub
	// polls has the poll pauses of pools that differ from pollEvery; for tests.
	polls map[any]time.Duration
}{of: map[any]*hub{}, polls: map[any]time.Duration{}}

type waiter struct {
	hub   *hub
	topic string
	wake  chan struct{} // capacity 1
	// listens means that polls do not wake it.
	listens bool
	// done means that the last wake was used. Only the waiter's own goroutine accesses it.
	done bool
}

// subscribe returns a waiter that is woken by notifications of a topic and by polls.
func subscribe(db database, topic string) *waiter { return join(db, topic, false) }

// listenOnly returns a waiter that is woken only by notifications, or when some may have been
// missed.
func listenOnly(db database, topic string) *waiter { return join(db, topic, true) }

func join(db database, topic string, listens bool) *waiter {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	h := hubs.of[db.pool()]
	if h == nil {
		ctx, stop := context.WithCancel(context.Background())
		h = &hub{db: db, poll: hubs.polls[db.pool()], stop: stop, waiting: map[string][]*waiter{}}
		h.work.Go(func() { h.ask(ctx) })
		h.work.Go(func() { h.listen(ctx) })
		hubs.of[db.pool()] = h
	}
	h.refs++
	w := &waiter{hub: h, topic: topic, wake: make(chan struct{}, 1), listens: listens, done: true}
	h.mu.Lock()
	h.waiting[topic] = append(h.waiting[topic], w)
	if listens && h.listening {
		w.wake <- struct{}{} // for notifications before this
	}
	h.mu.Unlock()
	return w
}

// leave ends the waiting. An unused wake goes to the next waiter, because the lock may be free.
func (w *waiter) leave() {
	h := w.hub
	h.mu.Lock()
	h.waiting[w.topic] = slices.DeleteFunc(h.waiting[w.topic], func(o *waiter) bool { return o == w })
	if len(h.waiting[w.topic]) == 0 {
		delete(h.waiting, w.topic)
	}
	select {
	case <-w.wake:
		w.done = false
	default:
	}
	if !w.done {
		h.wake(w.topic)
	}
	h.mu.Unlock()

	hubs.mu.Lock()
	h.refs--
	last := h.refs == 0
	if last {
		delete(hubs.of, h.db.pool())
	}
	hubs.mu.Unlock()
	if last {
		h.stop()
		h.work.Wait()
	}
}

// wake wakes the first waiter of a topic and moves it behind the others. h.mu must be held.
func (h *hub) wake(topic string) {
	all := h.waiting[topic]
	if len(all) == 0 {
		return
	}
	first := all[0]
	h.waiting[topic] = append(all[1:], first)
	select {
	case first.wake <- struct{}{}:
	default: // woken already and has not looked yet
	}
}

// wakeAll wakes one waiter of every topic; a poll only wakes waiters that poll.
func (h *hub) wakeAll(poll bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for topic, all := range h.waiting {
		if !poll || !all[0].listens {
			h.wake(topic)
		}
	}
}

func (h *hub) setListening(is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listening = is
}

func (h *hub) ask(ctx context.Context) {
	for sleep(ctx, cmp.Or(h.poll, pollEvery)) {
		h.wakeAll(true)
	}
}

func (h *hub) listen(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		if err := h.listenOnce(ctx); errors.Is(err, errors.ErrUnsupported) {
			return
		}
		pause := pollEvery
		if time.Since(began) > pollEvery {
			pause = listenAgain
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (h *hub) listenOnce(ctx context.Context) error {
	s, err := h.db.listener(ctx)
	if err != nil {
		return err
	}
	// A listening connection must not be used for anything else.
	defer s.close(true)
	if err := s.exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	h.setListening(true)
	defer h.setListening(false)
	h.wakeAll(false) // for notifications before this
	for {
		heard, err := s.notified(ctx)
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.wake(heard)
		h.mu.Unlock()
	}
}
