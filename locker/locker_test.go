//go:build linux

package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/locker"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for name, o := range map[string]locker.Options{
		"a lease below 0":           {LockFor: -1},
		"a renewal below 0":         {RenewEvery: -1},
		"a renewal as the lease":    {LockFor: time.Second, RenewEvery: time.Second},
		"a timeout below 0":         {BlockTimeout: -1, Blocking: true},
		"a timeout without waiting": {BlockTimeout: time.Second},
		"the name of a lost lock":   {Identifier: "me revoked"},
		"a table without a name":    {Table: "x."},
		"a table of three names":    {Table: "a.b.c"},
	} {
		_, err := locker.New(f.pool, "k", o)
		require.Error(t, err, name)
	}
	_, err := locker.New(f.pool, "k", locker.Options{LockFor: 5 * time.Second})
	require.NoError(t, err, "renewals follow from the lease")
	_, err = locker.Advisory(t.Context(), f.pool, "k", locker.AdvisoryOptions{BlockTimeout: time.Second}, nil)
	require.ErrorContains(t, err, "without Blocking")
	for _, key := range []string{"", "a\x00b", "locker:pruned"} {
		_, err := locker.New(f.pool, key, locker.Options{})
		require.Error(t, err, "%q", key)
	}
}

func TestByHand(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		a, b := f.lock(t, "k", locker.Options{}), f.lock(t, "k", locker.Options{})
		require.ErrorIs(t, a.Renew(ctx), locker.ErrLockStolen)
		require.ErrorIs(t, a.Release(ctx), locker.ErrLockStolen)

		got, err := a.Get(ctx)
		require.NoError(t, err)
		require.True(t, got)
		require.EqualValues(t, 1, a.Sequence())
		host, err := os.Hostname()
		require.NoError(t, err)
		require.Regexp(t, fmt.Sprintf("^host:%s pid:%d guid:[0-9a-f]{32}$", host, os.Getpid()), a.Identifier())
		require.Equal(t, a.Identifier(), value[string](t, f, "SELECT locked_by FROM %s WHERE key = 'k'"))
		work, lease := a.Left()
		require.Greater(t, lease, work)
		require.LessOrEqual(t, lease, locker.DefaultLockFor)

		got, err = b.Get(ctx)
		require.NoError(t, err)
		require.False(t, got)
		require.Equal(t, a.Identifier(), b.Holder().LockedBy)
		require.InDelta(t, 30, b.Holder().Left.Seconds(), 20)
		require.ErrorIs(t, b.Renew(ctx), locker.ErrLockStolen)
		require.ErrorIs(t, b.Release(ctx), locker.ErrLockStolen)

		f.exec(t, "UPDATE %s SET locked_until = locked_until - interval '10 seconds'")
		require.NoError(t, a.Renew(ctx))
		require.Greater(t, value[float64](t, f, "SELECT extract(epoch FROM locked_until - locked_at)::float8 FROM %s"), 25.0)
		require.NoError(t, a.Release(ctx))
		work, lease = a.Left()
		require.Zero(t, work+lease)
		require.ErrorIs(t, a.Release(ctx), locker.ErrLockStolen)

		was := a.Identifier()
		got, err = b.Get(ctx)
		require.NoError(t, err)
		require.True(t, got)
		require.EqualValues(t, 2, b.Sequence())
		require.NoError(t, b.Release(ctx))
		got, err = a.Get(ctx)
		require.NoError(t, err)
		require.True(t, got)
		require.EqualValues(t, 3, a.Sequence())
		require.NotEqual(t, was, a.Identifier(), "another acquisition has another identifier")
	})
}

func TestExpiredIsTakenOver(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		a, b := f.lock(t, "k", locker.Options{}), f.lock(t, "k", locker.Options{})
		got, err := a.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		f.exec(t, "UPDATE %s SET locked_until = clock_timestamp() AT TIME ZONE 'UTC' - interval '1 ms'")
		got, err = b.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		require.EqualValues(t, 2, b.Sequence())
		require.ErrorIs(t, a.Renew(t.Context()), locker.ErrLockStolen)
		require.ErrorIs(t, a.Release(t.Context()), locker.ErrLockStolen)
		require.Equal(t, b.Identifier(), value[string](t, f, "SELECT locked_by FROM %s"))
	})
}

func TestRun(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		t.Run("the block runs, its error comes back, and the lock is free", func(t *testing.T) {
			boom := errors.New("boom")
			ran, err := f.lock(t, "plain", quick).Run(t.Context(), func(ctx context.Context, sequence int64) error {
				require.EqualValues(t, 1, sequence)
				require.NoError(t, ctx.Err())
				got, err := f.lock(t, "plain", quick).Run(ctx, func(context.Context, int64) error { panic("two holders") })
				require.NoError(t, err)
				require.False(t, got)
				return boom
			})
			require.True(t, ran)
			require.Equal(t, boom, err)
			require.Nil(t, value[*string](t, f, "SELECT locked_by FROM %s WHERE key = 'plain'"))
		})
		t.Run("a panic releases the lock", func(t *testing.T) {
			require.Panics(t, func() {
				_, _ = f.lock(t, "panic", quick).Run(t.Context(), func(context.Context, int64) error { panic("oh") })
			})
			require.Nil(t, value[*string](t, f, "SELECT locked_by FROM %s WHERE key = 'panic'"))
		})
		t.Run("it is renewed for as long as the block runs, also when ctx has ended", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := f.lock(t, "long", quick).Run(ctx, func(ctx context.Context, _ int64) error {
				cancel()
				<-ctx.Done()
				first := value[time.Time](t, f, "SELECT locked_until FROM %s WHERE key = 'long'")
				proctest.Await(t, 30*time.Second, func() bool {
					return value[time.Time](t, f, "SELECT locked_until FROM %s WHERE key = 'long'").After(first.Add(3 * quick.RenewEvery))
				}, "renewals")
				return ctx.Err()
			})
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, locker.ErrLockStolen)
		})
		t.Run("one Lock runs one block", func(t *testing.T) {
			l := f.lock(t, "once", quick)
			_, err := l.Run(t.Context(), func(ctx context.Context, _ int64) error {
				_, err := l.Run(ctx, nil)
				return err
			})
			require.ErrorIs(t, err, locker.ErrInUse)
		})
	})
}

func TestStolen(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for name, theft := range map[string]string{
			"by another":       "UPDATE %s SET locked_by = 'thief' WHERE key = $1",
			"by a release":     "UPDATE %s SET locked_by = NULL WHERE key = $1",
			"with its row":     "DELETE FROM %s WHERE key = $1",
			"with a good name": "UPDATE %s SET locked_by = upper(locked_by) WHERE key = $1",
		} {
			t.Run(name, func(t *testing.T) {
				ran, err := f.lock(t, name, quick).Run(t.Context(), func(ctx context.Context, _ int64) error {
					f.exec(t, theft, name)
					receive(t, ctx.Done())
					require.ErrorIs(t, context.Cause(ctx), locker.ErrLockStolen)
					return nil
				})
				require.True(t, ran)
				require.ErrorIs(t, err, locker.ErrLockStolen)
			})
		}
		t.Run("at the last moment", func(t *testing.T) {
			o := quick
			o.LockFor, o.RenewEvery = time.Minute, 50*time.Second
			_, err := f.lock(t, "late", o).Run(t.Context(), func(context.Context, int64) error {
				f.exec(t, "UPDATE %s SET locked_by = 'thief' WHERE key = 'late'")
				return errors.New("own")
			})
			require.ErrorIs(t, err, locker.ErrLockStolen)
			require.ErrorContains(t, err, "own")
			require.Equal(t, "thief", value[string](t, f, "SELECT locked_by FROM %s WHERE key = 'late'"))
		})
	})
}

// A row locked by another transaction makes a renewal hang, as a dead network does.
func TestEndsBeforeTheLease(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		l := f.lock(t, "k", locker.Options{LockFor: 8 * time.Second, RenewEvery: 100 * time.Millisecond})
		ran, err := l.Run(t.Context(), func(ctx context.Context, _ int64) error {
			tx := f.begin(t, "SELECT FROM %s FOR UPDATE")
			defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
			receive(t, ctx.Done())
			require.ErrorIs(t, context.Cause(ctx), locker.ErrLockStolen)
			work, lease := l.Left()
			require.Zero(t, work)
			require.Positive(t, lease, "the block is told before the lease ends")
			return nil
		})
		require.True(t, ran)
		require.ErrorIs(t, err, locker.ErrLockStolen)
		require.Nil(t, value[*string](t, f, "SELECT locked_by FROM %s"), "what nobody has taken is given back")
	})
}

func TestNotReleased(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ran, err := f.lock(t, "k", locker.Options{}).Run(t.Context(), func(context.Context, int64) error {
		f.pool.Close()
		return nil
	})
	require.True(t, ran)
	require.ErrorIs(t, err, locker.ErrNotReleased)
}

// TestReleaseOfUnknownOutcome checks that a release without an answer, which may still take
// effect, does not release what the same Lock has taken since.
func TestReleaseOfUnknownOutcome(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		l := f.lock(t, "k", locker.Options{})
		got, err := l.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		first := l.Identifier()
		ended, end := context.WithCancel(t.Context())
		end()
		require.Error(t, l.Release(ended))
		got, err = l.Get(t.Context())
		require.NoError(t, err)
		require.False(t, got, "held under the name that was given up")
		require.Equal(t, first, l.Holder().LockedBy)
		require.NotEqual(t, first, l.Identifier())

		f.exec(t, "UPDATE %s SET locked_by = NULL WHERE locked_by = $1", first) // it arrives
		got, err = l.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		require.NoError(t, l.Renew(t.Context()))
	})
}

func TestBlocking(t *testing.T) {
	blocking := quick
	blocking.Blocking = true
	both(t, func(t *testing.T, f *fixture) {
		t.Run("a timeout ends it", func(t *testing.T) {
			o := blocking
			o.BlockTimeout = 2 * time.Second // the database has answered before
			_, err := f.lock(t, "timeout", quick).Run(t.Context(), func(ctx context.Context, _ int64) error {
				got, err := f.lock(t, "timeout", o).Run(ctx, nil)
				require.False(t, got)
				return err
			})
			require.NoError(t, err)
		})
		t.Run("its context ends it", func(t *testing.T) {
			_, err := f.lock(t, "ctx", quick).Run(t.Context(), func(ctx context.Context, _ int64) error {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				got, err := f.lock(t, "ctx", blocking).Run(ctx, nil)
				require.False(t, got)
				return err
			})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		t.Run("a release ends it, long before the next poll", func(t *testing.T) {
			for _, pool := range []any{f.pool, f.db} {
				locker.PollEvery(pool, time.Hour)
				defer locker.PollEvery(pool, 0)
			}
			defer f.waitElsewhere(t)()
			var waits []time.Duration
			for range 12 {
				first := f.lock(t, "release", quick)
				got, err := first.Get(t.Context())
				require.NoError(t, err)
				require.True(t, got)
				second := make(chan time.Time)
				var waiter sync.WaitGroup
				l := f.lock(t, "release", blocking)
				waiter.Go(func() {
					_, err := l.Run(t.Context(), func(context.Context, int64) error {
						second <- time.Now()
						return nil
					})
					require.NoError(t, err)
				})
				awaitRefusal(t, l)
				at := time.Now()
				require.NoError(t, first.Release(t.Context()))
				waits = append(waits, receive(t, second).Sub(at))
				waiter.Wait()
			}
			t.Logf("from a release to the next block: median %s, all %v", median(waits), waits)
		})
		t.Run("of a holder who tells nobody, a poll ends it", func(t *testing.T) {
			f.exec(t, "INSERT INTO %s (key, locked_by, locked_until) VALUES ('ruby', 'a gem', now() AT TIME ZONE 'UTC' + interval '1 hour')")
			defer f.waitElsewhere(t)()
			done := make(chan error, 1)
			l := f.lock(t, "ruby", blocking)
			go func() {
				_, err := l.Run(t.Context(), func(context.Context, int64) error { return nil })
				done <- err
			}()
			awaitRefusal(t, l)
			f.exec(t, "UPDATE %s SET locked_by = NULL WHERE key = 'ruby'")
			require.NoError(t, receive(t, done))
		})
		t.Run("more wait than there are connections, and all get their turn", func(t *testing.T) {
			var holders, turns int // written by holders alone
			var all sync.WaitGroup
			for range 12 {
				all.Go(func() {
					_, err := f.lock(t, "crowd", blocking).Run(t.Context(), func(context.Context, int64) error {
						holders++
						turns++
						if holders != 1 {
							return errors.New("two holders")
						}
						holders--
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			require.Equal(t, 12, turns)
		})
	})
}

// awaitRefusal waits until an attempt to take a lock has failed.
func awaitRefusal(t *testing.T, l *locker.Lock) {
	t.Helper()
	proctest.Await(t, 30*time.Second, func() bool { return l.Holder().LockedBy != "" }, "a waiter")
}

// waitElsewhere starts a waiter for another key, until the returned function is called. Later
// waiters then find the pool listening already, and get no wake from its start.
func (f *fixture) waitElsewhere(t *testing.T) (end func()) {
	t.Helper()
	holder := f.lock(t, "elsewhere", locker.Options{})
	got, err := holder.Get(t.Context())
	require.NoError(t, err)
	require.True(t, got)
	ctx, cancel := context.WithCancel(t.Context())
	var waiter sync.WaitGroup
	waiter.Go(func() { _, _ = f.lock(t, "elsewhere", locker.Options{Blocking: true}).Run(ctx, nil) })
	f.listening(t)
	return func() {
		cancel()
		waiter.Wait()
		require.NoError(t, holder.Release(t.Context()))
	}
}

// listening waits until a connection of this test listens.
func (f *fixture) listening(t *testing.T) {
	t.Helper()
	proctest.Await(t, 30*time.Second, func() bool {
		return value[int](t, f, `SELECT count(*) FROM pg_stat_activity
			WHERE query = 'LISTEN resqued_locker' AND state = 'idle' AND application_name = $1`, f.table) > 0
	}, "a listener")
}

func TestOutageWhileWaiting(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		holder := f.lock(t, "k", locker.Options{})
		got, err := holder.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		done := make(chan error, 1)
		go func() {
			o := quick
			o.Blocking = true
			_, err := f.lock(t, "k", o).Run(t.Context(), func(context.Context, int64) error { return nil })
			done <- err
		}()
		f.listening(t)
		f.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN resqued_locker' AND application_name = $1`, f.table)
		f.exec(t, "ALTER TABLE %s RENAME TO "+f.table+"_gone")
		require.ErrorContains(t, receive(t, done), "does not exist", "what waiting cannot mend ends it")
	})
}

func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	f := setup(t)
	small := newPool(t, server.URL(""), f.table, 1)
	f.db.SetMaxOpenConns(1)
	o := quick
	o.Table, o.Blocking = f.table, true
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			block := func(context.Context, int64) error { return nil }
			var err error
			if n%2 == 0 {
				_, err = locker.Run(t.Context(), small, "k", o, block)
			} else {
				_, err = locker.Run(t.Context(), f.db, "k", o, block)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func median(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }

// An infinite lease in the table is shown as the longest possible one, and a lease too long to
// represent is refused.
func TestTheLongestLeases(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		l := f.lock(t, "k", locker.Options{})
		got, err := l.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		f.exec(t, "UPDATE %s SET locked_until = 'infinity'")
		rows, err := locker.List(t.Context(), f.pool, f.table)
		require.NoError(t, err)
		require.Greater(t, rows[0].Left, 100*365*24*time.Hour)
		other := f.lock(t, "k", locker.Options{})
		got, err = other.Get(t.Context())
		require.NoError(t, err)
		require.False(t, got)
		require.Greater(t, other.Holder().Left, 100*365*24*time.Hour)
		for _, long := range []time.Duration{math.MaxInt64, 11 * 365 * 24 * time.Hour} {
			_, err = locker.New(f.pool, "new", locker.Options{LockFor: long, Table: f.table})
			require.ErrorContains(t, err, "LockFor "+long.String()+" is longer than")
			_, err = locker.Extend(t.Context(), f.pool, f.table, long, rows)
			require.ErrorContains(t, err, "lockFor "+long.String()+" is longer than")
		}
	})
}
