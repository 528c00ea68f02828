// Package thread performs one job: it takes the class lock, runs the handler and decides how
// the job has ended. It knows neither Redis nor other jobs.
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

// The record of a kill on request: the words of the Files.com fork, which its pages know.
const (
	KilledException = "Resque::DirtyExit"
	KilledMessage   = "Job was killed"
)

// Result is how a job ended.
type Result string

// The results, as written to logs and statistics.
const (
	Done        Result = "done"
	Interrupted Result = "interrupted" // done, and has pushed the rest of its work
	Discarded   Result = "discarded"
	Dropped     Result = "dropped" // not run, because its class lock was held
	Requeued    Result = "requeued"
	Failed      Result = "failed"
	Retried     Result = "retried" // failed, and runs again
	Died        Result = "died"    // the process that ran it is gone; see jobctx.DeathError
)

// Outcome is the result of a run.
type Outcome struct {
	Result Result
	// After is how long a requeued or retried job waits.
	After time.Duration
	// Err is why the job failed, was retried, discarded or dropped.
	Err error
	// Try is the run if the class has a retry policy, else nil.
	Try *retry.Try
	// Exception, Message and Backtrace are the fields of the failure record.
	Exception, Message string
	Backtrace          []string
	Ran                time.Duration
}

// Performer runs a class. handler.Set is one.
type Performer interface {
	// Perform calls done once with the job's error, on the caller's goroutine. It does not
	// return if the job's code ends that goroutine.
	Perform(ctx context.Context, job *resqued.Job, done func(err error))
	// Refuse is called for a job that ends with err without being performed. It returns an
	// error that is safe to inspect.
	Refuse(ctx context.Context, job *resqued.Job, err error) error
}

// Retries numbers runs and decides which jobs run again; *retry.Book implements it.
type Retries interface {
	// Begin notes the attempt number in the job. It blocks until the number is certain or ctx
	// ends, then with a Try of attempt 0. It returns nil for a job that never runs again.
	Begin(ctx context.Context, job *resqued.Job) (*retry.Try, error)
}

// Runner performs jobs; all threads of a process share one.
type Runner struct {
	Performer Performer
	// Locker takes class locks; nil = no class has one.
	Locker Locker
	// Check, if not nil, is called right before the handler, with the class lock held. If it
	// returns an error, the job ends with it and is not performed.
	Check func(ctx context.Context, job *resqued.Job) error
	// Hit carries out resqued.LimitHit and returns what the job ends with; nil = it is an error.
	Hit func(ctx context.Context, job *resqued.Job, hit *resqued.LimitHitError) error
	// Retries decides which failed jobs run again; nil = none.
	Retries Retries
	// Describe turns an error into the fields of a failure record.
	Describe func(err error) (exception, message string, backtrace []string)
	// Now is the clock; nil = time.Now.
	Now func() time.Time
}

// Run performs job and calls done once when its handler has ended, perhaps long after ctx has.
// claim shows others the state of the class lock. Run blocks until then; it does not return if
// the handler ends the goroutine (runtime.Goexit), but still calls done.
func (r *Runner) Run(ctx context.Context, job *resqued.Job, claim *classlock.Claim, done func(out Outcome)) {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	asked := now()
	ctx = jobctx.WithJob(ctx, job)
	unlock := func() {}
	try, err := r.begin(ctx, job)
	if err == nil {
		err = jobctx.RunOf(job).Refused
	}
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
		out := r.again(r.judge(ctx, job, r.hit(ctx, job, err)), try)
		unlock()
		out.Ran = now().Sub(began)
		done(out)
	})
}

// hit carries out a resqued.LimitHit, and returns what the job ends with.
func (r *Runner) hit(ctx context.Context, job *resqued.Job, err error) error {
	hit, ok := errors.AsType[*resqued.LimitHitError](err)
	if !ok || hit == nil || r.Hit == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hitTimeout)
	defer cancel()
	return r.Hit(ctx, job, hit)
}

// hitTimeout bounds how long a job whose service refuses it waits for Redis.
const hitTimeout = 10 * time.Second

func (r *Runner) begin(ctx context.Context, job *resqued.Job) (*retry.Try, error) {
	if r.Retries == nil {
		return nil, nil //nolint:nilnil // no job runs again
	}
	return r.Retries.Begin(ctx, job)
}

func (r *Runner) again(out Outcome, try *retry.Try) Outcome {
	if out.Try = try; try == nil || out.Result != Failed {
		return out
	}
	if after, again := try.Failed(retry.Failure{Err: out.Err, Exception: out.Exception, Message: out.Message}); again {
		out.Result, out.After = Retried, after
	}
	return out
}

// judge decides by what the handler returned; the end of its context matters only if it failed.
// A killed handler that finishes anyway has finished.
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
		if requeue != nil { // a nil *RequeueError is an error, too
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
