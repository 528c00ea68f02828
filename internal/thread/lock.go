package thread

import (
	"context"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
)

// Locker takes the class locks of jobs; *classlock.Locks is one.
type Locker interface {
	// Lock blocks until it is certain whether the job may run. If so, the job runs under the
	// returned context. unlock is called when its code has ended, and blocks until nothing that
	// belongs to the lock runs any more.
	//
	// An error has the effect of a handler's error: a *classlock.HeldError drops or fails the
	// job, resqued.Requeue puts it back.
	Lock(ctx context.Context, job *resqued.Job, claim *classlock.Claim) (held context.Context, unlock func(), err error)
}
