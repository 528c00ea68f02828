package thread_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/thread"
)

type perform func(ctx context.Context, job *resqued.Job) error

func (p perform) Perform(ctx context.Context, job *resqued.Job, done func(error)) { done(p(ctx, job)) }

func (p perform) Refuse(_ context.Context, _ *resqued.Job, err error) error { return err }

func run(ctx context.Context, fn perform) thread.Outcome {
	r := thread.Runner{Performer: fn, Describe: func(err error) (string, string, []string) {
		return "E", err.Error(), []string{"frame"}
	}}
	return outcome(ctx, &r, classlock.NewClaim("p", "1", nil))
}

func outcome(ctx context.Context, r *thread.Runner, claim *classlock.Claim) (out thread.Outcome) {
	r.Run(ctx, &resqued.Job{Class: "A"}, claim, func(o thread.Outcome) { out = o })
	return out
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	killed := func() context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(resqued.ErrKilled)
		return ctx
	}
	lost := func() context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("%w: taken by another", resqued.ErrLockLost))
		return ctx
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want thread.Outcome
	}{
		"success is done": {t.Context(), nil, thread.Outcome{Result: thread.Done}},
		"a wrapped discard is not a failure": {
			t.Context(), fmt.Errorf("%w: x", resqued.Discard),
			thread.Outcome{Result: thread.Discarded},
		},
		"a requeue says when": {
			t.Context(), fmt.Errorf("later: %w", resqued.Requeue(time.Minute)),
			thread.Outcome{Result: thread.Requeued, After: time.Minute},
		},
		"a nil requeue is one without delay": {
			t.Context(), (*resqued.RequeueError)(nil),
			thread.Outcome{Result: thread.Requeued},
		},
		"an error fails": {
			t.Context(), boom,
			thread.Outcome{Result: thread.Failed, Exception: "E", Message: "boom", Backtrace: []string{"frame"}},
		},
		"a killed job that fails was killed": {
			killed(), boom,
			thread.Outcome{Result: thread.Failed, Exception: "Resque::DirtyExit", Message: "Job was killed", Backtrace: []string{"frame"}},
		},
		"a killed job that finishes all the same is done": {killed(), nil, thread.Outcome{Result: thread.Done}},
		"a lost lock says so": {
			lost(), boom,
			thread.Outcome{Result: thread.Failed, Exception: "Resqued::LockLost", Message: "resqued: job lock lost: taken by another", Backtrace: []string{"frame"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := run(c.ctx, func(context.Context, *resqued.Job) error { return c.err })
			require.ErrorIs(t, out.Err, c.err)
			out.Err, out.Ran = nil, 0
			require.Equal(t, c.want, out)
		})
	}
}

// A job says itself that it was interrupted, which counts only if it succeeds.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]thread.Result{nil: thread.Interrupted, errors.New("boom"): thread.Failed, resqued.Requeue(0): thread.Requeued} {
		out := run(t.Context(), func(_ context.Context, job *resqued.Job) error {
			jobctx.RunOf(job).Interrupted = true
			return err
		})
		require.Equal(t, want, out.Result)
	}
}

func TestTheHandlerFindsItsJobInTheContext(t *testing.T) {
	t.Parallel()
	run(t.Context(), func(ctx context.Context, job *resqued.Job) error {
		require.Same(t, job, resqued.JobFrom(ctx))
		return nil
	})
	require.Nil(t, resqued.JobFrom(t.Context()))
}
