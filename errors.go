package resqued

import (
	"errors"
	"fmt"
	"time"
)

// Causes for which a job's context ends (context.Cause tells which).
var (
	// ErrKilled: somebody asked for the job to be killed (TERM, INT or USR1 to
	// the master or the worker, or a kill request that names the job). The job
	// is recorded as failed, or put back into its queue if that was asked for.
	ErrKilled = errors.New("resqued: job killed")
	// ErrTimeout: the job ran longer than its class allows.
	ErrTimeout = errors.New("resqued: job timed out")
	// ErrLockLost: the lock that the job held is gone, so another job with the
	// same key may be running. The job must stop at once and write no more.
	ErrLockLost = errors.New("resqued: job lock lost")
)

// Discard ends a job without a failure and without running it again. Return it,
// or wrap it to say why: fmt.Errorf("%w: no such user", resqued.Discard).
var Discard = errors.New("resqued: discarded") //nolint:revive,staticcheck // reads as a verb where it is returned

// Requeue ends this run of the job and puts it back at the tail of its queue,
// not earlier than after has passed (0 = at once). It is no failure, and it is
// not counted against any limit: a handler that always returns it runs for ever.
func Requeue(after time.Duration) error { return &RequeueError{After: max(after, 0)} }

// RequeueError is what Requeue returns.
type RequeueError struct {
	// After is how long the job waits before it may run again.
	After time.Duration
}

// Error says that, and after how long, the job wants to run again.
func (e *RequeueError) Error() string {
	if e == nil {
		return "resqued: requeue"
	}
	return fmt.Sprintf("resqued: requeue after %s", e.After)
}
