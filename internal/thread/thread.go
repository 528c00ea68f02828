// Package thread performs one job: it takes the job's class lock, runs the handler
// under the job's context and judges what came of it. It knows neither Redis nor
// other jobs.
package thread

import (
	"context"
	"errors"
	"time"

	"github.com/resqued/resqued"
)

// How a kill that somebody asked for is recorded: the words of the Files.com
// fork, which its pages know.
const (
	KilledException = "Resque::DirtyExit"
	KilledMessage   = "Job was killed"
)

// Result is how a job ended.
type Result string

// The results. Their text is also the outcome in logs and statistics.
const (
	Done      Result = "done"
	Discarded Result = "discarded"
	Dropped   Result = "dropped" // not run, because its class lock was held
	Requeued  Result = "requeued"
	Failed    Result = "failed"
)

// Outcome is what became of a job.
type Outcome struct {
	Result Result
	// After is how long a requeued job waits.
	After time.Duration
	// Err is why the job failed, was discarded or dropped.
	Err error
	// Exception, Message and Backtrace are what the failure record says.
	Exception, Message string
	Backtrace          []string
	Ran                time.Duration
}

// Performer runs a class. handler.Set is one.
type Performer interface {
	Perform(ctx context.Context, job *resqued.Job) error
	// Refuse is told of a job that ends with err without being performed, and
	// returns an error that is safe to look into.
	Refuse(ctx context.Context, job *resqued.Job, err error) error
}

// Runner performs jobs; all threads of a process share one.
type Runner struct {
	Performer Performer
	// Locker takes class locks; nil = no class has one.
	Locker Locker
	// Describe turns an error into the fields of a failure record.
	Describe func(err error) (exception, message string, backtrace []string)
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Run performs job and blocks until its handler has returned, which may be long
// after ctx has ended. claim is where others see what the job has of a class lock.
func (r *Runner) Run(ctx context.Context, job *resqued.Job, claim *Claim) Outcome {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	asked := now()
	began, out := r.run(resqued.WithJob(ctx, job), job, claim, now)
	if began.IsZero() {
		began = asked
	}
	out.Ran = now().Sub(began)
	return out
}

// run returns when the handler began; zero = it did not.
func (r *Runner) run(ctx context.Context, job *resqued.Job, claim *Claim, now func() time.Time) (began time.Time, out Outcome) {
	unlock := func() {}
	if r.Locker != nil {
		held, release, err := r.Locker.Lock(ctx, job, claim)
		if err != nil {
			return began, r.judge(ctx, r.Performer.Refuse(ctx, job, err))
		}
		ctx, unlock = held, release
	}
	began = now()
	claim.Update(func(s *ClaimState) { s.Began = began })
	out = r.judge(ctx, r.Performer.Perform(ctx, job))
	unlock()
	return began, out
}

// judge decides by what the handler returned; why its context ended only matters
// if it failed. A handler that finishes although it was killed has finished.
func (r *Runner) judge(ctx context.Context, err error) Outcome {
	var requeue *resqued.RequeueError
	var held *HeldError
	switch {
	case err == nil:
		return Outcome{Result: Done}
	case errors.As(err, &held) && held.Drop:
		return Outcome{Result: Dropped, Err: err}
	case errors.Is(err, resqued.Discard):
		return Outcome{Result: Discarded, Err: err}
	case errors.As(err, &requeue):
		out := Outcome{Result: Requeued, Err: err}
		if requeue != nil { // a nil *RequeueError is an error all the same
			out.After = requeue.After
		}
		return out
	}
	out := Outcome{Result: Failed, Err: err}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, resqued.ErrKilled):
		out.Exception, out.Message = KilledException, KilledMessage
		_, _, out.Backtrace = r.Describe(err)
	case errors.Is(cause, resqued.ErrLockLost):
		out.Exception, out.Message = "Resqued::LockLost", cause.Error()
		_, _, out.Backtrace = r.Describe(err)
	default:
		out.Exception, out.Message, out.Backtrace = r.Describe(err)
	}
	return out
}
