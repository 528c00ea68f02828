package resqued

import (
	"errors"
	"fmt"
	"time"
)

// Causes of the end of a job's context. Test them with errors.Is(context.Cause(ctx),
// ErrKilled).
var (
	// ErrKilled means that a signal (TERM, INT or USR1 to the master or the worker process) or
	// a kill request ended the job. The job is recorded as failed, or requeued if the request
	// says so.
	ErrKilled = errors.New("resqued: job killed")
	// ErrTimeout means that the job ran longer than its class, or its class lock, allows.
	ErrTimeout = errors.New("resqued: job timed out")
	// ErrLockLost means that the job no longer holds its lock, so another job with the same key
	// may be running. The handler must stop at once and write nothing more.
	ErrLockLost = errors.New("resqued: job lock lost")
	// ErrLimit is why a job fails that is over a limit, or whose limit cannot be computed.
	ErrLimit = errors.New("resqued: limit")
)

// Discard is the error that ends a job without a failure and without another run. Return it
// from a handler, or wrap it with a reason: fmt.Errorf("%w: no such user", resqued.Discard).
var Discard = errors.New("resqued: discarded") //nolint:revive,staticcheck // reads as a verb where it is returned

// Requeue returns an error that puts the job back at the tail of its queue after the duration
// after; 0 = at once. It is not a failure and counts against no limit: a job whose handler
// always returns it runs forever.
func Requeue(after time.Duration) error { return &RequeueError{After: max(after, 0)} }

// RequeueError is the error that Requeue returns.
type RequeueError struct {
	// After is how long the job waits before it goes back to its queue.
	After time.Duration
}

// Error returns a text that includes the duration.
func (e *RequeueError) Error() string {
	if e == nil {
		return "resqued: requeue"
	}
	return fmt.Sprintf("resqued: requeue after %s", e.After)
}
