package locker

import (
	"context"
	"errors"
	"testing"
	"time"
)

// silent is a pool that cannot listen.
type silent struct{ database }

func (s silent) pool() any                               { return s }
func (silent) listener(context.Context) (session, error) { return nil, errors.ErrUnsupported }

// A waiter that leaves with a wake in hand, or with one that it could not make use of,
// hands it on; one that has made use of it does not.
func TestWakeIsHandedOn(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(w *waiter) (handsOn bool){
		"not taken": func(*waiter) bool { return true },
		"not used": func(w *waiter) bool {
			<-w.wake
			w.done = false
			return true
		},
		"used": func(w *waiter) bool {
			<-w.wake
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &hub{db: silent{}, refs: 3, waiting: map[string][]*waiter{}}
			first, second := newWaiter(h), newWaiter(h)
			h.wake("k")
			want := last(first)
			first.leave()
			select {
			case <-second.wake:
				if !want {
					t.Error("woken for nothing")
				}
			default:
				if want {
					t.Error("not woken")
				}
			}
		})
	}
}

func newWaiter(h *hub) *waiter {
	w := &waiter{hub: h, topic: "k", wake: make(chan struct{}, 1), done: true}
	h.waiting["k"] = append(h.waiting["k"], w)
	return w
}

// The last to leave stops what the first has started; goleak sees it if not.
func TestHubEnds(t *testing.T) {
	t.Parallel()
	w := subscribe(silent{}, "k")
	select {
	case <-w.wake:
	case <-time.After(30 * time.Second):
		t.Error("no poll")
	}
	w.leave()
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	if hubs.of[silent{}] != nil {
		t.Error("still there")
	}
}
