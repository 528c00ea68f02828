package resqued

import (
	"errors"
	"fmt"
	"time"
)

// Causes for which a job's context ends. Ask errors.Is(context.Cause(ctx), ErrKilled) and so
// on.
var (
	// ErrKilled: a signal (TERM, INT or USR1 to the master or the worker process) or a
	// kill request for the job ended it. The job is recorded as failed, or put back into
	// its queue if the request says so.
	ErrKilled = errors.New("resqued: job killed")
	// ErrTimeout: the job ran longer than its class, or the lock of its class, allows.
	ErrTimeout = errors.New("resqued: job timed out")
	// ErrLockLost: the job no longer holds its lock, so another job with the same key
	// may be running. The handler must stop at once and write nothing more.
	ErrLockLost = errors.New("resqued: job lock lost")
)

// Discard is the error that ends a job without a failure and without running it again.
// Return it from a handler, or wrap it with the reason:
// fmt.Errorf("%w: no such user", resqued.Discard).
var Discard = errors.New("resqued: discarded") //nolint:revive,staticcheck // reads as a verb where it is returned

// Requeue returns an error that puts the job back at the tail of its queue, once the
// duration after has passed; 0 = at once. It is not a failure and is not counted against
// any limit: a job whose handler always returns it runs for ever.
func Requeue(after time.Duration) error { return &RequeueError{After: max(after, 0)} }

// RequeueError is what Requeue returns.
type RequeueError struct {
	// After is how long the job waits before it goes back to its queue.
	After time.Duration
}

// Error returns a text with the duration.
func (e *RequeueError) Error() string {
	if e == nil {
		return "resqued: requeue"
	}
	return fmt.Sprintf("resqued: requeue after %s", e.After)
}
