package resquedtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/resquedtest"
)

// TestLimits: limits hold in tests, too, by the clock of the test.
func TestLimits(t *testing.T) {
	t.Parallel()
	byNumber := func(job *resqued.Job) string { return string(job.Args[0]) }
	done := func(context.Context, int) error { return nil }
	outcomes := func(ended []resquedtest.Ended) (all []string) {
		for _, e := range ended {
			all = append(all, fmt.Sprintf("%s%s %s", e.Class, e.Args[0], e.Outcome))
		}
		return all
	}

	t.Run("a rate lets a burst begin, then one at a time, with no loss of those that were late", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		number(h, "A", done)
		h.Limit(resqued.Limit{Name: "slow", Classes: []string{"A"}, Rate: 6, Period: time.Minute, Burst: 2})
		q := resquedtest.New(t, h)
		for n := range 6 {
			enqueue(t, q, "A", n)
		}
		require.Equal(t, []string{"A0 done", "A1 done"}, outcomes(q.Drain(t)))
		q.Advance(9900 * time.Millisecond)
		require.Empty(t, q.Drain(t))
		q.Advance(400 * time.Millisecond)
		require.Equal(t, []string{"A2 done"}, outcomes(q.Drain(t)))
		q.Advance(9700 * time.Millisecond) // from when it was due, not from when it ran
		require.Equal(t, []string{"A3 done"}, outcomes(q.Drain(t)))
		q.Advance(time.Hour)
		require.Equal(t, []string{"A4 done", "A5 done"}, outcomes(q.Drain(t)))
	})
	t.Run("each key by itself, and what is over ends as the limit says", func(t *testing.T) {
		t.Parallel()
		for on, want := range map[string]string{
			resqued.LimitDiscard: "discarded", resqued.LimitFail: "failed", resqued.LimitRequeue: "requeued",
		} {
			h := resqued.New()
			number(h, "A", done)
			h.Limit(resqued.Limit{Name: "one", Queues: []string{"l*"}, Key: byNumber, Rate: 1, Period: time.Minute, OnLimit: on})
			q := resquedtest.New(t, h)
			for _, n := range []int{1, 2, 1} {
				enqueue(t, q, "A", n)
			}
			ended := q.Drain(t)
			require.Equal(t, []string{"A1 done", "A2 done", "A1 " + want}, outcomes(ended), on)
			switch on {
			case resqued.LimitFail:
				require.ErrorIs(t, ended[2].Err, resqued.ErrLimit)
				require.EqualError(t, ended[2].Err, "resqued: limit one:1 is reached")
			case resqued.LimitRequeue:
				require.Equal(t, time.Minute, ended[2].After)
				q.Advance(time.Minute)
				require.Equal(t, []string{"A1 done"}, outcomes(q.Drain(t)))
			}
		}
	})
	t.Run("a running job counts until it ends", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		var inside []string
		number(h, "A", func(_ context.Context, n int) error {
			inside = append(inside, outcomes(q.Drain(t))...)
			return nil
		})
		number(h, "B", done)
		h.Limit(resqued.Limit{Name: "one", Classes: []string{"A"}, Concurrency: 1})
		q = resquedtest.New(t, h)
		enqueue(t, q, "A", 1)
		enqueue(t, q, "A", 2)
		enqueue(t, q, "B", 3)
		require.Equal(t, []string{"A1 done", "A2 done"}, outcomes(q.Drain(t)))
		require.Equal(t, []string{"B3 done"}, inside)
	})
	t.Run("a service that refuses closes the key", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		refuses := true
		number(h, "A", func(_ context.Context, n int) error {
			if refuses && n == 1 {
				return fmt.Errorf("429: %w", resqued.LimitHit("svc", q.Now().Add(time.Hour)))
			}
			return nil
		})
		fails(h, "B", resqued.LimitHit("other", time.Now().Add(time.Hour)))
		h.Limit(resqued.Limit{Name: "svc", Classes: []string{"A"}, Key: byNumber, Concurrency: 9})
		q = resquedtest.New(t, h)
		for _, n := range []int{1, 2, 1} {
			enqueue(t, q, "A", n)
		}
		enqueue(t, q, "B", 1)
		ended := q.Drain(t)
		require.Equal(t, []string{"A1 requeued", "A2 done", "B1 failed"}, outcomes(ended))
		require.EqualError(t, ended[2].Err, `resqued: limit: LimitHit of "other": the job does not have that limit`)
		refuses = false
		q.Advance(59 * time.Minute)
		require.Empty(t, q.Drain(t))
		q.Advance(time.Minute)
		require.Equal(t, []string{"A1 done", "A1 done"}, outcomes(q.Drain(t)))
	})
	t.Run("what cannot be computed fails", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		number(h, "A", done)
		h.Limit(resqued.Limit{
			Name: "units", Classes: []string{"A"}, Rate: 1, Period: time.Second, Burst: 5,
			Key: func(job *resqued.Job) string {
				if string(job.Args[0]) == "3" {
					panic("no key")
				}
				return ""
			},
			Cost: func(job *resqued.Job) int { return len(job.Args[0]) * 3 },
		})
		q := resquedtest.New(t, h)
		for _, n := range []int{1, 20, 3} {
			enqueue(t, q, "A", n)
		}
		ended := q.Drain(t)
		require.Equal(t, []string{"A1 done", "A20 failed", "A3 failed"}, outcomes(ended))
		require.EqualError(t, ended[1].Err, "resqued: limit units: the job costs 6, above the burst of 5")
		require.EqualError(t, ended[2].Err, "resqued: limit units: the function for its key panicked")
		require.True(t, errors.Is(ended[2].Err, resqued.ErrLimit))
	})
	t.Run("a limit that cannot be is refused", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		h.Limit(resqued.Limit{Name: "one"})
		require.Panics(t, func() { h.Limit(resqued.Limit{Name: "one"}) })
	})
}
