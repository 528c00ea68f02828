//go:build linux

package locker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// silent is a pool without notifications.
type silent struct{ database }

func (s silent) pool() any                               { return s }
func (silent) listener(context.Context) (session, error) { return nil, errors.ErrUnsupported }

// A waiter that leaves with a wake, or with one that it could not use, passes it on. A waiter
// that has used its wake does not.
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

// The last waiter to leave stops the goroutines that the first has started; goleak checks that.
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

// cut is a pool whose connections end after a while.
type cut struct {
	database
	lives  []time.Duration
	opened []time.Time
}

func (c *cut) listener(ctx context.Context) (session, error) {
	n := len(c.opened)
	if c.opened = append(c.opened, time.Now()); n == len(c.lives) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return life(c.lives[n]), nil
}

// life is a connection that ends after a given time.
type life time.Duration

func (life) exec(context.Context, string) error                       { return nil }
func (life) row(context.Context, string, []any, ...any) (bool, error) { return false, nil }
func (life) close(bool)                                               {}
func (l life) notified(ctx context.Context) (string, error) {
	sleep(ctx, time.Duration(l))
	return "", errors.New("cut")
}

// A listening connection that is cut is replaced at once. If connections end repeatedly, the
// pauses protect the server.
func TestListensAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cut{lives: []time.Duration{time.Minute, 0, time.Second}}
		h := &hub{db: c, waiting: map[string][]*waiter{}}
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		h.work.Go(func() { h.listen(ctx) })
		time.Sleep(time.Hour) //nolint:forbidigo // of a bubble's clock
		stop()
		h.work.Wait()
		var at []time.Duration
		for _, opened := range c.opened {
			at = append(at, opened.Sub(began))
		}
		second := time.Minute + listenAgain
		third := second + pollEvery
		if want := []time.Duration{0, second, third, third + time.Second + listenAgain}; !slices.Equal(at, want) {
			t.Errorf("opened at %v, want %v", at, want)
		}
	})
}
