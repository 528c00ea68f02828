package jobkey

import (
	"context"
	"fmt"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
)

// JobLocks is what a check of job locks needs of Redis; *store.Store is one.
type JobLocks interface {
	HoldsJobLock(ctx context.Context, key, proc, token string) (bool, error)
}

// NewCheck returns a function that checks right before the handler of a job begins that the
// job still holds its lock; thread.Runner calls it. NewCheck returns nil for styles other
// than Ruby and Ruby34: only with these can workers with resque-locket take the lock away.
// They look for a lock and set it in two steps, and overwrite one that resqued takes between
// the two.
//
// A job that has lost its lock goes back to its queue and waits there as any locked job. If
// Redis does not answer the job runs: the heartbeat watches its lock.
func NewCheck(style string, locks JobLocks) func(ctx context.Context, job *resqued.Job) error {
	if style != Ruby && style != Ruby34 {
		return nil
	}
	return func(ctx context.Context, job *resqued.Job) error {
		if job.LockKey == "" {
			return nil
		}
		run := jobctx.RunOf(job)
		if ours, err := locks.HoldsJobLock(ctx, job.LockKey, run.Proc, run.Token); err != nil || ours {
			return nil //nolint:nilerr // the heartbeat watches the lock
		}
		return fmt.Errorf("the job lock was taken away before the job began: %w", resqued.Requeue(0))
	}
}
