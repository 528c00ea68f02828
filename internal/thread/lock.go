package thread

import (
	"context"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
)

// Locker takes the class locks of jobs; *classlock.Locks is one.
type Locker interface {
	// Lock blocks until it is certain whether the job may run. If it may, it runs
	// under the context that Lock returns, and unlock is called when its code has
	// ended; unlock blocks until nothing that belongs to the lock runs any more.
	//
	// Else the error says what becomes of the job, as a handler's error would: a
	// *classlock.HeldError drops or fails it, resqued.Requeue puts it back.
	Lock(ctx context.Context, job *resqued.Job, claim *classlock.Claim) (held context.Context, unlock func(), err error)
}
