package thread_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/thread/retry"
)

// counts is a Redis that holds one count.
type counts int

func (c counts) RetryCounts(context.Context, []string) ([]int, error) { return []int{int(c)}, nil }

type unsure struct{ err error }

func (u unsure) Begin(context.Context, *resqued.Job) (*retry.Try, error) { return nil, u.err }

func retries(t *testing.T, count int, r resqued.Retry) *retry.Book {
	t.Helper()
	h := resqued.New()
	h.Register(resqued.Class{Name: "A", Retry: &r, Handler: func(context.Context, *resqued.Job) error { return nil }})
	b, err := retry.NewBook(retry.BookConfig{Store: counts(count), Classes: h.Classes(), Class: func(name string, _ ...string) (*resqued.Class, bool) { return h.Lookup(name) }})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func TestRetries(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	perform := func(t *testing.T, count int, err error, lock error) (out thread.Outcome, seen [2]int) {
		t.Helper()
		r := thread.Runner{
			Performer: perform(func(_ context.Context, job *resqued.Job) error {
				seen = [2]int{job.Attempt, job.MaxAttempts}
				return err
			}),
			Describe: func(err error) (string, string, []string) { return "E", err.Error(), nil },
			Retries: retries(t, count, resqued.Retry{
				Attempts: 3, Backoff: []time.Duration{time.Minute, time.Hour}, NeverOn: resqued.Errors{Exceptions: []string{"Never"}, Messages: []string{"^hopeless"}},
			}),
		}
		if lock != nil {
			r.Locker = locker(func(context.Context, *classlock.Claim) (context.Context, func(), error) { return nil, nil, lock })
		}
		return outcome(t.Context(), &r, classlock.NewClaim("p", "1", nil)), seen
	}

	out, seen := perform(t, -1, boom, nil)
	require.Equal(t, [2]int{1, 3}, seen)
	require.Equal(t, thread.Retried, out.Result)
	require.Equal(t, time.Minute, out.After)
	require.ErrorIs(t, out.Err, boom)
	require.Equal(t, "E", out.Exception)
	require.Equal(t, "resque-retry:A", out.Try.Key)
	require.False(t, out.Try.Counted)

	out, seen = perform(t, 0, boom, nil)
	require.Equal(t, [2]int{2, 3}, seen)
	require.Equal(t, time.Hour, out.After)
	require.True(t, out.Try.Counted)

	out, _ = perform(t, 1, boom, nil)
	require.Equal(t, thread.Failed, out.Result, "that was the last")
	require.NotNil(t, out.Try)

	out, _ = perform(t, -1, errors.New("hopeless"), nil)
	require.Equal(t, thread.Failed, out.Result)

	for err, want := range map[error]thread.Result{nil: thread.Done, resqued.Discard: thread.Discarded, resqued.Requeue(time.Second): thread.Requeued} {
		out, _ = perform(t, 1, err, nil)
		require.Equal(t, want, out.Result)
		require.NotNil(t, out.Try, "its count may have to go")
	}

	out, seen = perform(t, -1, nil, &classlock.HeldError{Key: "k", Holder: "h"})
	require.Equal(t, thread.Retried, out.Result, "a lock that is held is a failure like others")
	require.Zero(t, seen, "it has not run")
	out, _ = perform(t, -1, nil, &classlock.HeldError{Key: "k", Holder: "h", Drop: true})
	require.Equal(t, thread.Dropped, out.Result)

	r := thread.Runner{
		Performer: retriesPerform(t), Retries: unsure{resqued.ErrKilled},
		Describe: func(err error) (string, string, []string) { return "E", err.Error(), nil },
	}
	out = outcome(t.Context(), &r, classlock.NewClaim("p", "1", nil))
	require.Equal(t, thread.Failed, out.Result, "nobody knows whether it may run")
	require.Nil(t, out.Try)
}

// silent is a Redis that does not answer.
type silent struct{}

func (silent) RetryCounts(ctx context.Context, _ []string) ([]int, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A job that was killed before Redis had told its count runs again if its class would have
// any killed job run again; its run has no number.
func TestKilledBeforeTheCountIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retry resqued.Retry
		want  thread.Result
	}{
		"it runs again":            {resqued.Retry{Attempts: 2}, thread.Retried},
		"not if it runs only once": {resqued.Retry{Attempts: 1}, thread.Failed},
		"not if kills are final": {
			resqued.Retry{Attempts: 2, NeverOn: resqued.Errors{Exceptions: []string{thread.KilledException}}}, thread.Failed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := resqued.New()
			h.Register(resqued.Class{Name: "A", Retry: &c.retry, Handler: func(context.Context, *resqued.Job) error { return nil }})
			b, err := retry.NewBook(retry.BookConfig{Store: silent{}, Classes: h.Classes(), Class: func(name string, _ ...string) (*resqued.Class, bool) { return h.Lookup(name) }})
			require.NoError(t, err)
			t.Cleanup(b.Close)
			r := thread.Runner{
				Performer: retriesPerform(t), Retries: b,
				Describe: func(err error) (string, string, []string) { return "E", err.Error(), nil },
			}
			ctx, kill := context.WithCancelCause(t.Context())
			kill(resqued.ErrKilled)
			out := outcome(ctx, &r, classlock.NewClaim("p", "1", nil))
			require.Equal(t, c.want, out.Result)
			require.NotNil(t, out.Try)
			require.Zero(t, out.Try.Attempt)
			require.Equal(t, "resque-retry:A", out.Try.Key)
		})
	}
}

func retriesPerform(t *testing.T) perform {
	return func(context.Context, *resqued.Job) error {
		t.Error("it ran")
		return nil
	}
}
