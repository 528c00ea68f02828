package main

import (
	"context"
	"time"

	"github.com/resqued/resqued"
)

// timed holds the arguments of a job with a time limit for its class lock.
type timed struct {
	ID, Milliseconds int
	// Stubborn makes the job ignore cancellation.
	Stubborn bool
}

func registerClassLocked(h *resqued.Handlers, n *notes) {
	// Timed is a Gate with a time limit for its lock.
	resqued.Handle(h, "Timed", func(ctx context.Context, a timed) error {
		return n.gate(ctx, a.ID, !a.Stubborn)
	}, resqued.Lock[timed]{
		ClassWide:   true,
		TimeoutFunc: func(a timed) time.Duration { return time.Duration(a.Milliseconds) * time.Millisecond },
		OnLockExpiredBeforeRelease: func(_ context.Context, a timed) {
			_ = n.mark("expired", a.ID)
		},
	})
	// Untimed is a Gate with a lock for the whole class. A job that finds it held is put back.
	resqued.Handle(h, "Untimed", func(ctx context.Context, id int) error {
		return n.gate(ctx, id, true)
	}, resqued.Lock[int]{
		ClassWide: true,
		OnLockFailed: func(_ context.Context, id int) error {
			if err := n.mark("locked", id); err != nil {
				return err
			}
			return resqued.Requeue(100 * time.Millisecond)
		},
	})
}
