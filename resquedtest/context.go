package resquedtest

import (
	"context"
	"testing"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
)

// context returns the context of a job, and sets the fields of the job that only the daemon may
// set.
func (p *jobParts) context(t testing.TB) context.Context {
	ctx := t.Context()
	if p.timeout != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.timeout, resqued.ErrTimeout)
		t.Cleanup(cancel)
		p.job.Deadline, _ = ctx.Deadline()
	}
	run := jobctx.RunOf(p.job)
	run.Fence, run.Proc, run.Token = p.fence, "resquedtest", "1"
	leaving, leave := context.WithCancel(context.Background())
	if t.Cleanup(leave); p.leaving {
		leave()
	}
	ctx = jobctx.WithLeaving(ctx, leaving)
	if p.locked {
		ctx = jobctx.WithLocks(ctx, ownLock{p.job.Class})
	}
	return jobctx.WithJob(ctx, p.job)
}

// ownLock answers for a job that is alone and holds the lock of its class.
type ownLock struct{ class string }

func (l ownLock) Locked(_ context.Context, class string, _ any) (bool, error) {
	return class == l.class, nil
}

func (l ownLock) Enqueued(context.Context, string, any) (bool, error) { return false, nil }

func (l ownLock) LonerLocked(_ context.Context, class string, _ any) (bool, error) {
	return class == l.class, nil
}

func (l ownLock) RefreshLock(context.Context) error { return nil }
