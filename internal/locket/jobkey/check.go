package jobkey

import (
	"context"
	"fmt"

	"github.com/resqued/resqued"
)

// JobLocks is what a check of job locks needs of Redis; *store.Store is one.
type JobLocks interface {
	HoldsJobLock(ctx context.Context, key, proc, token string) (bool, error)
}

// NewCheck returns the last look at a job's lock before its handler begins, for
// thread.Runner; nil where the style is none of Ruby's. Only with these the lock may be
// taken by workers with resque-locket, which look for it and set it in two steps: between
// them resqued takes it, and is overwritten.
//
// A job whose lock is no longer its own goes back to its queue, and waits there as any
// that is locked. If Redis does not answer it runs: the heartbeat watches its lock.
func NewCheck(style string, locks JobLocks) func(ctx context.Context, job *resqued.Job) error {
	if style != Ruby && style != Ruby34 {
		return nil
	}
	return func(ctx context.Context, job *resqued.Job) error {
		if job.LockKey == "" {
			return nil
		}
		proc, token := job.Run()
		if ours, err := locks.HoldsJobLock(ctx, job.LockKey, proc, token); err != nil || ours {
			return nil //nolint:nilerr // see above
		}
		return fmt.Errorf("the job lock %s was taken away before the job began: %w", job.LockKey, resqued.Requeue(0))
	}
}
