package resquedtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/resquedtest"
)

func TestAdvance(t *testing.T) {
	t.Parallel()
	t.Run("a delayed job runs when its time has come", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil)
		q := resquedtest.New(t, h)
		enqueue(t, q, "A", 1, client.In(time.Hour))
		enqueue(t, q, "A", 2, client.At(q.Now().Add(30*time.Minute)))
		require.Empty(t, q.Drain(t))
		require.Empty(t, q.Jobs())
		delayed := q.Delayed()
		require.Len(t, delayed, 2)
		require.Equal(t, "low: A [2]", delayed[0].String())
		require.WithinDuration(t, q.Now().Add(30*time.Minute), delayed[0].Due, time.Second)
		q.Advance(31 * time.Minute)
		require.Equal(t, []string{"low: A [2] done"}, lines(q.Drain(t)))
		q.Advance(29 * time.Minute)
		require.Equal(t, []string{"low: A [1] done"}, lines(q.Drain(t)))
		require.Empty(t, q.Delayed())
	})

	t.Run("very many delayed jobs run in one drain", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil)
		q := resquedtest.NewWith(t, h, resquedtest.Options{MaxJobs: 600})
		for n := range 600 {
			enqueue(t, q, "A", n, client.In(time.Minute))
		}
		q.Advance(time.Hour)
		require.Len(t, q.Drain(t), 600)
	})

	t.Run("a job that goes back for later waits for that", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		back := true
		number(h, "A", func(context.Context, int) error {
			if back {
				back = false
				return resqued.Requeue(5 * time.Second)
			}
			return nil
		})
		q := resquedtest.New(t, h)
		enqueue(t, q, "A", 1)
		require.Equal(t, resquedtest.OutcomeRequeued, q.Drain(t)[0].Outcome)
		q.Advance(4 * time.Second)
		require.Empty(t, q.Drain(t))
		q.Advance(time.Second)
		require.Equal(t, resquedtest.OutcomeDone, q.Drain(t)[0].Outcome)
	})

	t.Run("a job that fails runs again by the retry of its class", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", errBoom, resqued.Retry{Attempts: 3, Backoff: []time.Duration{time.Minute, time.Hour}})
		q := resquedtest.New(t, h)
		enqueue(t, q, "A", 1)
		require.Equal(t, []string{"low: A [1] retried for 1m0s: boom"}, lines(q.Drain(t)))
		require.Empty(t, q.Failed())
		require.Len(t, q.Delayed(), 1)
		q.Advance(time.Minute)
		require.Equal(t, []string{"low: A [1] retried for 1h0m0s: boom"}, lines(q.Drain(t)))
		q.Advance(time.Hour)
		last := q.Drain(t)
		require.Equal(t, []string{"low: A [1] failed: boom"}, lines(last))
		require.Equal(t, 3, last[0].Attempt)
		require.Equal(t, 3, q.Failed()[0].Attempts)
		q.Advance(24 * time.Hour)
		require.Empty(t, q.Drain(t))
	})

	t.Run("a failed job that is retried by hand runs again", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		err := errBoom
		number(h, "A", func(context.Context, int) error { return err }, resqued.AtMostOnce())
		q := resquedtest.New(t, h)
		enqueue(t, q, "A", 1)
		q.Drain(t)
		q.Advance(24 * time.Hour)
		require.Empty(t, q.Drain(t), "not by itself")
		err = nil
		_, retryErr := q.Client().RetryFailed(t.Context(), client.Filter{All: true})
		require.NoError(t, retryErr)
		require.Equal(t, resquedtest.OutcomeDone, q.Drain(t)[0].Outcome)
	})

	t.Run("time passes while a job runs, and its process lives on", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		number(h, "A", func(context.Context, int) error { q.Advance(time.Hour); return nil })
		q = resquedtest.New(t, h)
		enqueue(t, q, "A", 1)
		enqueue(t, q, "A", 2)
		enqueue(t, q, "A", 3, client.In(90*time.Minute))
		require.Equal(t, []string{"low: A [1] done", "low: A [2] done", "low: A [3] done"}, lines(q.Drain(t)))
	})

	t.Run("time begins where the options say and stands still", func(t *testing.T) {
		t.Parallel()
		start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		q := resquedtest.NewWith(t, nil, resquedtest.Options{Time: start})
		require.Equal(t, start, q.Now())
		q.Advance(time.Minute)
		require.Equal(t, start.Add(time.Minute), q.Now())
		require.Equal(t, q.Now().Unix(), redisOf(t, q).Time(t.Context()).Val().Unix())
	})

	t.Run("time does not go back", func(t *testing.T) {
		t.Parallel()
		message := expectFailure(t, func(t testing.TB) { resquedtest.New(t, nil).Advance(-1) })
		require.Contains(t, message, "time does not go back")
	})
}

func TestInline(t *testing.T) {
	t.Parallel()
	t.Run("a job runs before the call that enqueues it returns", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		var seen calls
		number(h, "Outer", func(ctx context.Context, n int) error {
			_, err := q.Client().Enqueue(ctx, "Inner", n)
			seen.add("outer %d", n)
			return err
		})
		number(h, "Inner", func(_ context.Context, n int) error { seen.add("inner %d", n); return errBoom })
		q = resquedtest.New(t, h)
		q.Inline()
		enqueue(t, q, "Outer", 1)
		require.Equal(t, []string{"inner 1", "outer 1"}, seen.take())
		require.Equal(t, []string{"low: Inner [1] failed: boom", "low: Outer [1] done"}, lines(q.Ended()))
		require.Len(t, q.Failed(), 1)
	})

	t.Run("a delayed job waits for its time", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil)
		q := resquedtest.New(t, h)
		q.Inline()
		enqueue(t, q, "A", 1, client.In(time.Minute))
		require.Empty(t, q.Ended())
		q.Advance(time.Minute)
		require.Len(t, q.Drain(t), 1)
	})

	t.Run("a job that enqueues itself for ever fails the test", func(t *testing.T) {
		t.Parallel()
		message := expectFailure(t, func(t testing.TB) {
			h := resqued.New()
			var q *resquedtest.Queues
			number(h, "Again", func(ctx context.Context, n int) error {
				_, err := q.Client().Enqueue(ctx, "Again", n+1)
				return err
			})
			q = resquedtest.New(t, h)
			q.Inline()
			_, _ = q.Client().Enqueue(t.Context(), "Again", 1)
		})
		require.Contains(t, message, "each run by the one before: does a job enqueue itself?")
	})
}

func TestLongJobs(t *testing.T) {
	t.Parallel()
	t.Run("a run is worked slice by slice until it is done", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var seen calls
		longjob.Register(h, "Copy", func(ctx context.Context, r *longjob.Runner, n int) error {
			for _, step := range []string{"one", "two", "three"} {
				if err := r.WorkOnce(ctx, step, func(context.Context) error { seen.add("%s of %d", step, n); return nil }); err != nil {
					return err
				}
			}
			return nil
		}, longjob.Options{Queue: "low", MaxUnits: 1})
		q := resquedtest.New(t, h)
		res, err := q.LongJobs().Enqueue(t.Context(), "Copy", 7)
		require.NoError(t, err)
		require.Greater(t, len(q.Drain(t)), 2, "one slice for each step")
		require.Equal(t, []string{"one of 7", "two of 7", "three of 7"}, seen.take())
		run, err := q.LongJobs().Get(t.Context(), res.UUID)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusCompleted, run.Status)
	})

	t.Run("a slice that fails goes on later", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		err := errBoom
		longjob.Register(h, "Copy", func(context.Context, *longjob.Runner, int) error { return err }, longjob.Options{Queue: "low"})
		q := resquedtest.New(t, h)
		res, enqueueErr := q.LongJobs().Enqueue(t.Context(), "Copy", 7)
		require.NoError(t, enqueueErr)
		require.Len(t, q.Drain(t), 1)
		err = nil
		require.Empty(t, q.Drain(t))
		q.Advance(longjob.DefaultRetryAfter)
		require.Len(t, q.Drain(t), 1)
		run, getErr := q.LongJobs().Get(t.Context(), res.UUID)
		require.NoError(t, getErr)
		require.Equal(t, longjob.StatusCompleted, run.Status)
	})
}
