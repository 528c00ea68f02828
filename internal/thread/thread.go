// Package thread performs one job: it takes the job's class lock, runs the handler
// under the job's context and decides how the job has ended. It knows neither Redis nor
// other jobs.
package thread

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/thread/retry"
)

// How a kill on request is recorded: in the words of the Files.com fork, which its pages
// know.
const (
	KilledException = "Resque::DirtyExit"
	KilledMessage   = "Job was killed"
)

// Result is how a job ended.
type Result string

// The results. Their text is also the outcome in logs and statistics.
const (
	Done        Result = "done"
	Interrupted Result = "interrupted" // done, and it has pushed the rest of its work
	Discarded   Result = "discarded"
	Dropped     Result = "dropped" // not run, because its class lock was held
	Requeued    Result = "requeued"
	Failed      Result = "failed"
	Retried     Result = "retried" // failed, and to run again
	Died        Result = "died"    // the process that ran it is gone, see jobctx.DeathError
)

// Outcome is what became of a job.
type Outcome struct {
	Result Result
	// After is how long a requeued or retried job waits.
	After time.Duration
	// Err is why the job failed, also if it is retried, was discarded or dropped.
	Err error
	// Try is the run, if the class of the job has a retry policy; else nil.
	Try *retry.Try
	// Exception, Message and Backtrace are the fields of the failure record.
	Exception, Message string
	Backtrace          []string
	Ran                time.Duration
}

// Performer runs a class. handler.Set is one.
type Performer interface {
	// Perform calls done with the error of the job, once, on the goroutine of the
	// caller. It does not return if the job's code ends that goroutine.
	Perform(ctx context.Context, job *resqued.Job, done func(err error))
	// Refuse is called for a job that ends with err without being performed, and returns
	// an error that is safe to look into.
	Refuse(ctx context.Context, job *resqued.Job, err error) error
}

// Retries knows which run of its job a run is, and which jobs run again; *retry.Book is
// one.
type Retries interface {
	// Begin notes the number of the attempt in the job. It blocks until that is certain
	// or ctx ends, with a Try of attempt 0 then, and returns nil for a job that never runs
	// again.
	Begin(ctx context.Context, job *resqued.Job) (*retry.Try, error)
}

// Runner performs jobs; all threads of a process share one.
type Runner struct {
	Performer Performer
	// Locker takes class locks; nil = no class has one.
	Locker Locker
	// Check, if not nil, is called right before the handler, when the job has its class
	// lock. A job that it returns an error for ends with that and is not performed.
	Check func(ctx context.Context, job *resqued.Job) error
	// Retries knows which failed jobs run again; nil = none.
	Retries Retries
	// Describe turns an error into the fields of a failure record.
	Describe func(err error) (exception, message string, backtrace []string)
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Run performs job and calls done when its handler has returned, which may be long
// after ctx has ended. claim shows others the state of the job's class lock.
//
// It blocks until then, but does not return if the handler ends the goroutine
// (runtime.Goexit): done is called, once, all the same.
func (r *Runner) Run(ctx context.Context, job *resqued.Job, claim *classlock.Claim, done func(out Outcome)) {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	asked := now()
	ctx = jobctx.WithJob(ctx, job)
	unlock := func() {}
	try, err := r.begin(ctx, job)
	if err == nil && r.Locker != nil {
		var held context.Context
		var release func()
		if held, release, err = r.Locker.Lock(ctx, job, claim); err == nil {
			ctx, unlock = held, release
		}
	}
	if err == nil && r.Check != nil {
		err = r.Check(ctx, job)
	}
	if err != nil {
		out := r.again(r.judge(ctx, job, r.Performer.Refuse(ctx, job, err)), try)
		unlock()
		out.Ran = now().Sub(asked)
		done(out)
		return
	}
	began := now()
	claim.Begin(began)
	r.Performer.Perform(ctx, job, func(err error) {
		out := r.again(r.judge(ctx, job, err), try)
		unlock()
		out.Ran = now().Sub(began)
		done(out)
	})
}

func (r *Runner) begin(ctx context.Context, job *resqued.Job) (*retry.Try, error) {
	if r.Retries == nil {
		return nil, nil //nolint:nilnil // no job runs again
	}
	return r.Retries.Begin(ctx, job)
}

// again decides whether a job that has failed runs again.
func (r *Runner) again(out Outcome, try *retry.Try) Outcome {
	if out.Try = try; try == nil || out.Result != Failed {
		return out
	}
	if after, again := try.Failed(retry.Failure{Err: out.Err, Exception: out.Exception, Message: out.Message}); again {
		out.Result, out.After = Retried, after
	}
	return out
}

// judge decides by what the handler returned; why its context ended only matters
// if it failed. A handler that finishes although it was killed has finished.
func (r *Runner) judge(ctx context.Context, job *resqued.Job, err error) Outcome {
	var requeue *resqued.RequeueError
	var held *classlock.HeldError
	switch {
	case err == nil && jobctx.RunOf(job).Interrupted:
		return Outcome{Result: Interrupted}
	case err == nil:
		return Outcome{Result: Done}
	case errors.As(err, &held) && held.Drop:
		return Outcome{Result: Dropped, Err: err}
	case isDeath(err):
		return Outcome{Result: Died, Err: err, Exception: KilledException, Message: err.Error()}
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
		if why, ok := strings.CutPrefix(cause.Error(), resqued.ErrKilled.Error()+": "); ok {
			out.Message += ": " + why
		}
		_, _, out.Backtrace = r.Describe(err)
	case errors.Is(cause, resqued.ErrLockLost):
		out.Exception, out.Message = "Resqued::LockLost", cause.Error()
		_, _, out.Backtrace = r.Describe(err)
	default:
		out.Exception, out.Message, out.Backtrace = r.Describe(err)
	}
	return out
}

func isDeath(err error) bool {
	_, ok := errors.AsType[*jobctx.DeathError](err)
	return ok
}
