//go:build linux

package locker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/locker"
)

func (f *fixture) advisory(ctx context.Context, key string, o locker.AdvisoryOptions, block func(context.Context) error) (bool, error) {
	if f.bySQL {
		return locker.Advisory(ctx, f.db, key, o, block)
	}
	return locker.Advisory(ctx, f.pool, key, o, block)
}

func TestAdvisory(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	both(t, func(t *testing.T, f *fixture) {
		// Advisory locks are per server, not per table.
		key, space := "key of "+f.table, new(int32(-7))
		t.Run("it excludes others, and the gem", func(t *testing.T) {
			boom := errors.New("boom")
			ran, err := f.advisory(t.Context(), key, locker.AdvisoryOptions{}, func(ctx context.Context) error {
				ran, err := f.advisory(ctx, key, locker.AdvisoryOptions{}, nil)
				require.NoError(t, err)
				require.False(t, ran)
				ran, err = f.advisory(ctx, key, locker.AdvisoryOptions{Lockspace: space}, nothing)
				require.NoError(t, err)
				require.True(t, ran, "another lockspace")
				return boom
			})
			require.True(t, ran)
			require.Equal(t, boom, err)
			ran, err = f.advisory(t.Context(), key, locker.AdvisoryOptions{}, nothing)
			require.NoError(t, err)
			require.True(t, ran, "it was released")
			// zlib's crc32 of "abcdef" is 0x4B8E39EF, that of "a" 0xE8B7BE43.
			for name, number := range map[string]int64{"abcdef": 0x4B8E39EF, "a": 0xE8B7BE43 - 1<<32} {
				_, err = f.advisory(t.Context(), name, locker.AdvisoryOptions{Blocking: true, Lockspace: space}, func(context.Context) error {
					require.False(t, value[bool](t, f, "SELECT pg_try_advisory_xact_lock(-7, $1::int)", number))
					return nil
				})
				require.NoError(t, err)
			}
		})
		t.Run("a timeout and a context end the waiting", func(t *testing.T) {
			_, err := f.advisory(t.Context(), key, locker.AdvisoryOptions{}, func(ctx context.Context) error {
				ran, err := f.advisory(ctx, key, locker.AdvisoryOptions{Blocking: true, BlockTimeout: 20 * time.Millisecond}, nil)
				require.NoError(t, err)
				require.False(t, ran)
				ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				ran, err = f.advisory(ctx, key, locker.AdvisoryOptions{Blocking: true}, nil)
				require.False(t, ran)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return nil
			})
			require.NoError(t, err)
		})
		t.Run("a release ends the waiting", func(t *testing.T) {
			done := make(chan error, 1)
			// Blocking, because the server may take a moment to notice that a waiter has gone.
			_, err := f.advisory(t.Context(), key, locker.AdvisoryOptions{Blocking: true}, func(context.Context) error {
				go func() {
					_, err := f.advisory(t.Context(), key, locker.AdvisoryOptions{Blocking: true}, nothing)
					done <- err
				}()
				proctest.Await(t, 30*time.Second, func() bool {
					return value[int](t, f, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'advisory'", f.table) == 1
				}, "a waiter")
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, receive(t, done))
		})
		for name, every := range map[string]time.Duration{"at once": time.Hour, "by asking": 10 * time.Millisecond} {
			t.Run("a lost connection is noticed "+name, func(t *testing.T) {
				ran, err := f.advisory(t.Context(), key, locker.AdvisoryOptions{Blocking: true, CheckEvery: every}, func(ctx context.Context) error {
					f.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1
						AND pid IN (SELECT pid FROM pg_stat_activity WHERE application_name = $1)`, f.table)
					receive(t, ctx.Done())
					require.ErrorIs(t, context.Cause(ctx), locker.ErrLockConnectionLost)
					return nil
				})
				require.True(t, ran)
				require.ErrorIs(t, err, locker.ErrLockConnectionLost)
			})
		}
		t.Run("the session's limits do not end it", func(t *testing.T) {
			f := &fixture{table: f.table, bySQL: f.bySQL}
			f.open(t, "idle_in_transaction_session_timeout", "50ms")
			_, err := f.advisory(t.Context(), key, locker.AdvisoryOptions{Blocking: true}, func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
				return nil
			})
			require.NoError(t, err)
		})
		t.Run("the transaction does not hold up vacuum", func(t *testing.T) {
			_, err := f.advisory(t.Context(), key, locker.AdvisoryOptions{Blocking: true}, func(context.Context) error {
				require.Zero(t, value[int](t, f, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state = 'idle in transaction' AND backend_xmin IS NOT NULL", f.table))
				return nil
			})
			require.NoError(t, err)
		})
	})
}
