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
)

type locker func(ctx context.Context, claim *classlock.Claim) (context.Context, func(), error)

func (l locker) Lock(ctx context.Context, _ *resqued.Job, claim *classlock.Claim) (context.Context, func(), error) {
	return l(ctx, claim)
}

func TestLocker(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	withLock := func(l locker, fn perform) (thread.Outcome, *classlock.Claim) {
		clock := start
		r := thread.Runner{
			Performer: fn, Locker: l,
			Describe: func(err error) (string, string, []string) { return "E", err.Error(), nil },
			Now: func() time.Time {
				clock = clock.Add(time.Second)
				return clock
			},
		}
		claim := classlock.NewClaim("p", "1", nil)
		return outcome(t.Context(), &r, claim), claim
	}

	t.Run("the job runs under the context of its lock, which ends after it", func(t *testing.T) {
		t.Parallel()
		var steps []string
		out, claim := withLock(func(ctx context.Context, _ *classlock.Claim) (context.Context, func(), error) {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(resqued.ErrLockLost)
			return ctx, func() { steps = append(steps, "unlocked") }, nil
		}, func(ctx context.Context, _ *resqued.Job) error {
			steps = append(steps, "performed")
			return context.Cause(ctx)
		})
		require.Equal(t, []string{"performed", "unlocked"}, steps)
		require.Equal(t, "Resqued::LockLost", out.Exception, "judged by what the lock's context says")
		require.Equal(t, start.Add(2*time.Second), claim.State().Began, "not while it waited for the lock")
		require.Equal(t, time.Second, out.Ran)
	})

	for name, c := range map[string]struct {
		err  error
		want thread.Result
	}{
		"a dropped job is not run":       {&classlock.HeldError{Key: "k", Holder: "h", Drop: true}, thread.Dropped},
		"one that fails is not run":      {&classlock.HeldError{Key: "k", Holder: "h"}, thread.Failed},
		"one that goes back is not run":  {errors.Join(&classlock.HeldError{}, resqued.Requeue(0)), thread.Requeued},
		"another error fails it as well": {errors.New("broken"), thread.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, claim := withLock(func(context.Context, *classlock.Claim) (context.Context, func(), error) {
				return nil, nil, c.err
			}, func(context.Context, *resqued.Job) error { panic("it ran") })
			require.Equal(t, c.want, out.Result)
			require.ErrorIs(t, out.Err, c.err)
			require.Zero(t, claim.State().Began)
		})
	}
}
