package jobkey

import (
	"context"
	"fmt"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
)

// JobLocks is the part of *store.Store that NewCheck uses.
type JobLocks interface {
	HoldsJobLock(ctx context.Context, key, proc, token string) (bool, error)
}

// NewCheck returns a check for thread.Runner: right before the handler begins, the job must still
// hold its lock. It returns nil for styles other than Ruby and Ruby34: only then can workers with
// resque-locket take the lock away. They look for a lock and set it in two steps, and overwrite
// one that resqued takes in between.
//
// A job that has lost its lock returns to its queue and waits like any locked job. If Redis does
// not answer, the job runs: the heartbeat watches its lock.
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
