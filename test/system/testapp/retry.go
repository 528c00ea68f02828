package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/resqued/resqued"
)

func registerRetries(h *resqued.Handlers, n *notes) {
	// Flaky fails twice and then passes. Its notes are kept separately for each attempt.
	flaky := func(ctx context.Context, id int) error {
		attempt := resqued.JobFrom(ctx).Attempt
		if err := n.mark(fmt.Sprint("attempt-", attempt), id); err != nil {
			return err
		}
		if attempt <= 2 {
			return errors.New("no luck yet")
		}
		return nil
	}
	resqued.Handle(h, "Flaky", flaky, resqued.Retry{Attempts: 3, Base: 100 * time.Millisecond, Max: 2 * time.Second})
	resqued.Handle(h, "FlakyNow", flaky, resqued.Retry{Attempts: 3, Backoff: []time.Duration{0}})
	// Hopeless always fails.
	resqued.Handle(h, "Hopeless", func(ctx context.Context, id int) error {
		return errors.Join(n.mark("ran", id), errors.New("no hope"))
	}, resqued.Retry{Attempts: 3, Backoff: []time.Duration{0, time.Second}})
}
