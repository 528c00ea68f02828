package app

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/store"
)

const (
	DemoQueue = "demo"
	// demoEvery is the time between two of them.
	demoEvery = 350 * time.Millisecond
	// demoBacklog is how many jobs may wait. The enqueuer then pauses, so that a paused daemon
	// does not fill Redis.
	demoBacklog = 20
)

var errFlaky = errors.New("the coin came up tails")

// withDemo returns the handlers and the demo classes. A handler replaces the demo class of the
// same name.
func withDemo(handlers *resqued.Handlers) *resqued.Handlers {
	h := handler.Copy(handlers, nil)
	for _, c := range demoClasses() {
		if taken, ok := h.Lookup(c.Name); !ok || taken.Name != c.Name {
			h.Register(c)
		}
	}
	return h
}

// demoClasses returns a fast class, a slow one, one that sometimes fails, and one that is
// enqueued again while it runs: its lock keeps the second job waiting.
func demoClasses() []resqued.Class {
	last := func(shortest, longest time.Duration) resqued.Handler {
		return func(ctx context.Context, _ *resqued.Job) error {
			return nap(ctx, shortest+rand.N(longest-shortest))
		}
	}
	return []resqued.Class{
		{Name: "Hello", Queue: DemoQueue, Handler: last(5*time.Millisecond, 30*time.Millisecond)},
		{Name: "Slow", Queue: DemoQueue, Handler: last(2*time.Second, 5*time.Second)},
		{Name: "Locked", Queue: DemoQueue, Handler: last(time.Second, 2*time.Second)},
		{Name: "Flaky", Queue: DemoQueue, Handler: func(ctx context.Context, _ *resqued.Job) error {
			if err := nap(ctx, 50*time.Millisecond); err != nil {
				return err
			}
			if rand.IntN(3) == 0 {
				return errFlaky
			}
			return nil
		}},
	}
}

// nap waits like a job that honours its context.
func nap(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// EnqueueDemo enqueues demo jobs until ctx ends, about three a second, but not while earlier
// ones wait.
func EnqueueDemo(ctx context.Context, s *store.Store, c *client.Client) {
	names := []string{"world", "Redis", "resqued"}
	ticks := time.NewTicker(demoEvery)
	defer ticks.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		class, args := "Hello", []any{names[n%len(names)]}
		switch n % 8 {
		case 2:
			class, args = "Flaky", []any{n}
		case 4:
			class, args = "Slow", []any{n}
		case 6, 7:
			class, args = "Locked", []any{"the same"}
		}
		if behind, err := s.Payloads(ctx, DemoQueue, demoBacklog-1, 1); err != nil || len(behind) > 0 {
			continue
		}
		// An outage of the demo's Redis ends the demo.
		_, _ = c.Enqueue(ctx, class, args, client.Queue(DemoQueue))
	}
}
