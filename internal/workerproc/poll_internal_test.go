package workerproc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
)

// waitingQueues is a Redis that only answers which queues have jobs.
type waitingQueues struct {
	Store
	mu    sync.Mutex
	reply store.PollReply
	err   error
	polls atomic.Int64
	moved atomic.Int64
	asked []store.PollRequest
}

func (w *waitingQueues) set(reply store.PollReply, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply, w.err = reply, err
}

func (w *waitingQueues) Poll(_ context.Context, r store.PollRequest) (store.PollReply, error) {
	w.polls.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, r)
	return w.reply, w.err
}

func (w *waitingQueues) MoveDue(context.Context, string, func(string) bool) (store.Due, error) {
	w.moved.Add(1)
	return store.Due{}, nil
}

func (w *waitingQueues) DelayedQueues(context.Context) ([]string, error) { return nil, nil }

// patient is a Waiter that waits until a push.
type patient struct {
	names []string
	push  chan bool
}

func (p *patient) Await(ctx context.Context, _ string) (bool, error) {
	select {
	case <-p.push:
		return true, nil
	case <-time.After(5 * time.Second):
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (p *patient) Queues(context.Context) ([]string, error) { return p.names, nil }
func (p *patient) Close() error                             { return nil }

func TestPoller(t *testing.T) {
	t.Parallel()
	const interval = 100 * time.Millisecond

	// polling runs a poller alone, in a bubble.
	polls := func(t *testing.T, stretch bool, test func(t *testing.T, p *poller, w *waitingQueues)) {
		t.Helper()
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, w := setup(t), &waitingQueues{}
			var helpers sync.WaitGroup
			s.d.Store, s.cfg.Interval, s.cfg.StretchInterval = w, interval, stretch
			p := newPoller(s.shared, func() int64 { return 7 }, &helpers)
			ctx, cancel := context.WithCancel(t.Context())
			helpers.Go(func() { p.run(ctx) })
			test(t, p, w)
			cancel()
			helpers.Wait()
		})
	}

	polling := func(t *testing.T, test func(t *testing.T, p *poller, w *waitingQueues)) {
		t.Helper()
		polls(t, false, test)
	}

	t.Run("however many others look, an interval that was set is kept", func(t *testing.T) {
		polling(t, func(t *testing.T, p *poller, w *waitingQueues) {
			p.set(pollQuiet)
			p.pollForAll(true)
			w.set(store.PollReply{Shared: true}, nil)
			<-time.After(2 * awake)
			before := w.polls.Load()
			<-time.After(10 * interval)
			require.InDelta(t, 10, w.polls.Load()-before, 1, "those others may find threads for one job alone")
		})
	})

	t.Run("while others look, too, it looks seldom", func(t *testing.T) {
		polls(t, true, func(t *testing.T, p *poller, w *waitingQueues) {
			looks := func() (n int) {
				before := w.polls.Load()
				<-time.After(10 * interval)
				synctest.Wait()
				return int(w.polls.Load() - before)
			}
			p.set(pollQuiet)
			p.pollForAll(true)
			require.InDelta(t, 10, looks(), 1)
			w.set(store.PollReply{Shared: true}, nil)
			p.hurry()
			looks()
			require.InDelta(t, 10, looks(), 1, "it has worked")
			<-time.After(awake)
			looks()
			require.InDelta(t, 10/spread, looks(), 1)
			w.set(store.PollReply{}, nil)
			looks()
			require.InDelta(t, 10, looks(), 1, "it has to look itself")
			asked := func() (all []store.PollRequest) {
				w.mu.Lock()
				defer w.mu.Unlock()
				all, w.asked = w.asked, nil
				return all
			}
			for _, r := range asked() {
				require.False(t, r.Fresh)
				require.Equal(t, interval*2/5, r.Share, "the others look within an interval")
			}
			w.set(store.PollReply{Shared: true}, nil)
			looks()
			asked()
			p.look()
			<-p.results
			require.True(t, asked()[0].Fresh, "it is sure that something has come")
			w.set(store.PollReply{Reasons: store.Reasons{"q": store.Free}}, nil)
			<-p.results
			asked()
			<-p.results
			require.True(t, asked()[0].Fresh, "it has found something")
		})
	})
	t.Run("off it does not look, but when asked", func(t *testing.T) {
		polling(t, func(t *testing.T, p *poller, w *waitingQueues) {
			<-time.After(10 * time.Second)
			require.Zero(t, w.polls.Load())
			p.look()
			r := <-p.results
			require.EqualValues(t, 1, w.polls.Load())
			require.EqualValues(t, 7, r.sends)
			require.False(t, r.any)
		})
	})

	t.Run("quiet it speaks up only when there is something to do", func(t *testing.T) {
		polling(t, func(t *testing.T, p *poller, w *waitingQueues) {
			p.set(pollQuiet)
			<-time.After(time.Second)
			require.Greater(t, w.polls.Load(), int64(8), "a process that has worked looks at every interval")
			require.Empty(t, p.results)
			w.set(store.PollReply{Reasons: store.Reasons{"q": store.Free}}, nil)
			require.True(t, (<-p.results).any)
			w.set(store.PollReply{}, errors.New("away"))
			<-p.results // a look before, perhaps
			for r := range p.results {
				if r.err != nil {
					break
				}
			}
		})
	})

	t.Run("idle for long, only the poller looks at every interval", func(t *testing.T) {
		polling(t, func(t *testing.T, p *poller, w *waitingQueues) {
			p.set(pollQuiet)
			<-time.After(2 * awake)
			before := w.polls.Load()
			<-time.After(10 * asleep)
			require.LessOrEqual(t, w.polls.Load()-before, int64(11))
			p.pollForAll(true)
			before = w.polls.Load()
			<-time.After(10 * asleep)
			require.Greater(t, w.polls.Load()-before, int64(80))
			p.pollForAll(false)
			p.hurry()
			before = w.polls.Load()
			<-time.After(2 * time.Second)
			require.Greater(t, w.polls.Load()-before, int64(15), "stirred")
		})
	})

	t.Run("the poller looks less and less often while it waits for every queue", func(t *testing.T) {
		for _, c := range []struct {
			name   string
			queues []string
			names  []string // in the set of all queues
			reply  store.PollReply
			limit  int
			fixed  bool // the interval was set
			few    bool
		}{
			{name: "named queues", queues: []string{"q", "r"}, few: true},
			{name: "globs", queues: []string{"*"}, names: []string{"q", "r"}, reply: store.PollReply{Known: 2}, few: true},
			{name: "an interval that was set", queues: []string{"q"}, fixed: true},
			{name: "more queues than waits", queues: []string{"q", "r", "s"}, limit: 2},
			{name: "a queue of locked jobs", queues: []string{"q", "r"}, reply: store.PollReply{Reasons: store.Reasons{"r": store.Locked}}},
			{name: "a paused queue with jobs", queues: []string{"q", "r"}, reply: store.PollReply{Reasons: store.Reasons{"r": store.Paused}}},
			{name: "jobs set apart", queues: []string{"q"}, reply: store.PollReply{Suspects: map[string]int{"q": 1}}},
			{name: "more queues than have been read", queues: []string{"*"}, names: []string{"q"}, reply: store.PollReply{Known: 100}},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s, w := setup(t), &waitingQueues{}
					w.set(c.reply, nil)
					var err error
					s.cfg.Queues, _, err = selector.Parse(c.queues, 1)
					require.NoError(t, err)
					var helpers sync.WaitGroup
					waiter := &patient{names: c.names, push: make(chan bool)}
					s.d.Store, s.cfg.Interval, s.cfg.StretchInterval = w, interval, !c.fixed
					s.d.OpenWaiter, s.d.Waits = func(int) (Waiter, error) { return waiter, nil }, cmp.Or(c.limit, 16)
					p := newPoller(s.shared, func() int64 { return 7 }, &helpers)
					ctx, cancel := context.WithCancel(t.Context())
					helpers.Go(func() { p.run(ctx) })
					helpers.Go(func() { // the loop, which does nothing
						for {
							select {
							case <-p.results:
							case <-ctx.Done():
								return
							}
						}
					})
					p.set(pollQuiet)
					p.pollForAll(true)
					<-time.After(2 * awake)
					before := w.polls.Load()
					<-time.After(10 * asleep)
					if looks := w.polls.Load() - before; c.few {
						require.InDelta(t, 10, looks, 2)
						before = w.polls.Load()
						waiter.push <- true
						require.Contains(t, []string{"q", "r"}, <-p.pushed)
						require.Equal(t, before, w.polls.Load(), "the loop tries for the job, whatever a look would say")
						p.beCalm()
						<-time.After(10 * rest)
						require.Equal(t, before+1, w.polls.Load(), "to wait for the next push")
						p.hurry()
						<-time.After(time.Second)
						require.Greater(t, w.polls.Load(), before+8, "one that has worked looks at every interval")
					} else {
						require.Greater(t, looks, int64(80))
					}
					cancel()
					helpers.Wait()
				})
			})
		}
	})

	t.Run("jobs that are due are moved once a look", func(t *testing.T) {
		polling(t, func(t *testing.T, p *poller, w *waitingQueues) {
			w.set(store.PollReply{Due: true}, nil)
			p.look()
			<-p.results
			require.EqualValues(t, 1, w.moved.Load())
			require.EqualValues(t, 2, w.polls.Load())
		})
	})
}

// TestLooksOfAFleet: however many daemons there are, they look as often as one, and ask not much
// more often.
func TestLooksOfAFleet(t *testing.T) {
	t.Parallel()
	const interval = 100 * time.Millisecond
	for _, c := range []struct{ masters, asked int }{{2, 30}, {4, 50}, {48, 250}, {500, 700}} {
		t.Run(fmt.Sprint(c.masters), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, f := setup(t), &fleetOfPollers{masters: c.masters}
				s.d.Store, s.cfg.Interval, s.cfg.StretchInterval = f, interval, true
				var helpers sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				for i := range c.masters {
					p := newPoller(s.shared, func() int64 { return 0 }, &helpers)
					p.set(pollQuiet)
					p.pollForAll(true)
					helpers.Go(func() {
						<-time.After(time.Duration(i) * 97 * time.Millisecond / time.Duration(c.masters))
						p.run(ctx)
					})
				}
				<-time.After(30 * time.Second)
				f.mu.Lock()
				f.asked, f.looks, f.longest = 0, 0, 0
				f.mu.Unlock()
				<-time.After(30 * time.Second)
				f.mu.Lock()
				defer f.mu.Unlock()
				require.LessOrEqual(t, f.longest, 2*interval)
				require.LessOrEqual(t, f.looks, 30*25)
				require.LessOrEqual(t, f.asked, 30*c.asked)
				cancel()
				helpers.Wait()
			})
		})
	}
}

// fleetOfPollers is the shared state of a fleet's pollers: a look that has found nothing counts
// for all for a while.
type fleetOfPollers struct {
	waitingQueues
	mu           sync.Mutex
	masters      int
	until, last  time.Time
	asked, looks int
	longest      time.Duration
}

func (f *fleetOfPollers) Poll(_ context.Context, r store.PollRequest) (store.PollReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	now := time.Now()
	if !r.Fresh && now.Before(f.until) {
		return store.PollReply{Shared: true}, nil
	}
	f.looks++
	f.longest = max(f.longest, now.Sub(f.last))
	f.last, f.until = now, now.Add(r.Share)
	return store.PollReply{Masters: f.masters}, nil
}
