package locker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// pollEvery is how often a key is asked for without having heard of a release: the
// Ruby gem tells nobody, a pooler may not pass notifications on, a dead holder is
// silent.
const pollEvery = 500 * time.Millisecond

// listenAgain is the pause before another connection listens, where the last one has
// done so for a while: until then releases are not heard.
const listenAgain = 10 * time.Millisecond

// hub wakes the waiters of one pool. It wakes one for a key at a time, the one that has
// waited longest since its last turn: if the others asked, too, they would only keep
// the holder's statements waiting.
//
// The first waiter starts it, the last one to leave stops it.
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

// hubs are those in use, by pool.
var hubs = struct {
	mu sync.Mutex
	of map[any]*hub
	// polls are pauses between polls of pools that have another one than all others.
	polls map[any]time.Duration
}{of: map[any]*hub{}, polls: map[any]time.Duration{}}

// waiter is one that waits for a topic.
type waiter struct {
	hub   *hub
	topic string
	wake  chan struct{} // holds at most one
	// listens: it is not woken for a poll.
	listens bool
	// done: the last wake has been made use of. Its own goroutine's.
	done bool
}

// subscribe returns a waiter that hears of a topic, and asks now and then without.
func subscribe(db database, topic string) *waiter { return join(db, topic, false) }

// listenOnly returns one that is woken for what was told alone, or may have been while
// nothing listened.
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
		w.wake <- struct{}{} // for what was told before
	}
	h.mu.Unlock()
	return w
}

// leave ends the waiting. A wake that was not made use of goes to the next one: the
// lock may be free.
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

// wake wakes the first waiter of a topic and puts it behind the others.
func (h *hub) wake(topic string) {
	all := h.waiting[topic]
	if len(all) == 0 {
		return
	}
	first := all[0]
	h.waiting[topic] = append(all[1:], first)
	select {
	case first.wake <- struct{}{}:
	default: // it has been woken and not looked yet
	}
}

// wakeAll wakes a waiter of every topic, for a poll only of those that poll.
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

// ask wakes a waiter of every topic now and then.
func (h *hub) ask(ctx context.Context) {
	for sleep(ctx, cmp.Or(h.poll, pollEvery)) {
		h.wakeAll(true)
	}
}

// listen wakes a waiter of a topic when its lock is released.
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
	// A connection that listens must not be used for anything else.
	defer s.close(true)
	if err := s.exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	h.setListening(true)
	defer h.setListening(false)
	h.wakeAll(false) // for what was told before
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
