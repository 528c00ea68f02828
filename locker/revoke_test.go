//go:build linux

package locker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/locker"
)

// revoke takes a lock away from its holder.
func (f *fixture) revoke(t *testing.T, key string) locker.Row {
	t.Helper()
	rows, err := locker.List(t.Context(), f.pool, f.table, key)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	done, err := locker.Revoke(t.Context(), f.pool, f.table, rows[0])
	require.NoError(t, err)
	require.True(t, done)
	return rows[0]
}

func TestRevoke(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		l, next := f.lock(t, "k", locker.Options{}), f.lock(t, "k", locker.Options{})
		take := func(l *locker.Lock) bool {
			t.Helper()
			got, err := l.Get(ctx)
			require.NoError(t, err)
			return got
		}
		require.True(t, take(l))
		was := f.revoke(t, "k")
		rows, err := locker.List(ctx, f.pool, f.table, "k")
		require.NoError(t, err)
		require.True(t, rows[0].Held())
		require.True(t, rows[0].Revoked())
		require.Equal(t, l.Identifier()+" revoked", rows[0].LockedBy)
		again, err := locker.Revoke(ctx, f.pool, f.table, rows[0])
		require.NoError(t, err)
		require.False(t, again)
		again, err = locker.Revoke(ctx, f.pool, f.table, was)
		require.NoError(t, err)
		require.False(t, again)

		require.False(t, take(next), "its holder may still work")
		require.ErrorIs(t, l.Renew(ctx), locker.ErrLockStolen)
		work, lease := l.Left()
		require.Zero(t, work)
		require.Positive(t, lease, "there is time to stop")
		require.False(t, take(next))
		lost, err := locker.Extend(ctx, f.pool, f.table, time.Hour, []locker.Row{was})
		require.NoError(t, err)
		require.Equal(t, []int{0}, lost)
		require.ErrorIs(t, l.Release(ctx), locker.ErrLockStolen)
		require.True(t, take(next), "its holder has ended")
		require.ErrorIs(t, l.Release(ctx), locker.ErrLockStolen)
		require.NoError(t, next.Renew(ctx))

		// A name of the maximum length in the gem's tables.
		f.exec(t, "ALTER TABLE %s ALTER locked_by TYPE varchar(255)")
		long := f.lock(t, "long", locker.Options{Identifier: strings.Repeat("ü", 255)})
		require.True(t, take(long))
		f.revoke(t, "long")
		require.ErrorIs(t, long.Release(ctx), locker.ErrLockStolen)
		require.Nil(t, value[*string](t, f, "SELECT locked_by FROM %s WHERE key = 'long'"))

		// The lock of a dead holder can be broken by either name, and can be taken when its
		// lease ends.
		require.True(t, take(long))
		named := f.revoke(t, "long")
		broken, err := locker.Break(ctx, f.pool, f.table, named)
		require.NoError(t, err)
		require.True(t, broken)
		require.True(t, take(long))
		f.revoke(t, "long")
		f.exec(t, "UPDATE %s SET locked_until = clock_timestamp() AT TIME ZONE 'UTC' - interval '1 ms'")
		require.True(t, take(long))
	})
}

// TestRevokeBesideTheGem checks that a holder in Ruby loses its lock at its next renewal and
// does not release it, so that the lock is free at the end of its lease.
func TestRevokeBesideTheGem(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ruby := f.gem(t, "k")
	require.True(t, ruby.run(t, gemGet))
	f.revoke(t, "k")
	require.False(t, ruby.run(t, gemRenew), "LockStolen")
	l := f.lock(t, "k", locker.Options{})
	got, err := l.Get(t.Context())
	require.NoError(t, err)
	require.False(t, got)
	require.False(t, ruby.run(t, gemGet), "nor does Ruby get it again before")
	f.exec(t, "UPDATE %s SET locked_until = clock_timestamp() AT TIME ZONE 'UTC' - interval '1 ms'")
	require.True(t, ruby.run(t, gemGet))
}

// TestRevokedHolderHears checks that the holder's block ends at once, not at its next renewal,
// and that the waiting one begins after it.
func TestRevokedHolderHears(t *testing.T) {
	t.Parallel()
	f := setup(t)
	o := locker.Options{LockFor: longLease}
	began, stopping, end := make(chan struct{}), make(chan error, 1), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := f.lock(t, "k", o).Run(t.Context(), func(ctx context.Context, _ int64) error {
			close(began)
			<-ctx.Done()
			stopping <- context.Cause(ctx)
			<-end
			return nil
		})
		ended <- err
	}()
	receive(t, began)
	waiter := f.lock(t, "k", locker.Options{Blocking: true})
	next := make(chan error, 1)
	go func() {
		_, err := waiter.Run(t.Context(), func(context.Context, int64) error { return nil })
		next <- err
	}()
	awaitRefusal(t, waiter)
	f.revoke(t, "k")
	err := receive(t, stopping)
	require.ErrorIs(t, err, locker.ErrLockStolen)
	require.ErrorContains(t, err, "was revoked")
	select {
	case err := <-next:
		t.Fatal("the next one runs beside the old holder", err)
	case <-time.After(700 * time.Millisecond): // longer than between two polls
	}
	close(end)
	require.ErrorIs(t, receive(t, ended), locker.ErrLockStolen)
	require.NoError(t, receive(t, next))
}
