//go:build linux

package locker_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/locker"
)

// within fails the test if something immediate takes as long as a lease.
func within(t *testing.T, did func()) {
	t.Helper()
	began := time.Now()
	did()
	require.Less(t, time.Since(began), longLease/2)
}

const longLease = 5 * time.Minute

// run runs a block on the fixture's kind of pool.
func (f *fixture) run(t *testing.T, key string, o locker.Options) (bool, error) {
	t.Helper()
	return f.lock(t, key, o).Run(t.Context(), func(context.Context, int64) error { return nil })
}

// TestClosedPool checks that a closed pool is an error even with Blocking.
func TestClosedPool(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		holder, err := locker.New(zoned(t, "UTC"), "k", locker.Options{Table: f.table})
		require.NoError(t, err)
		got, err := holder.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		done := make(chan error, 2)
		l := f.lock(t, "k", locker.Options{Blocking: true})
		go func() {
			_, err := l.Run(t.Context(), nil)
			done <- err
		}()
		awaitRefusal(t, l)
		if f.bySQL {
			require.NoError(t, f.db.Close())
		} else {
			f.pool.Close()
		}
		require.ErrorContains(t, receive(t, done), "closed", "one that waits already")

		go func() {
			_, err := f.run(t, "other", locker.Options{Blocking: true})
			done <- err
		}()
		require.ErrorContains(t, receive(t, done), "closed", "one that comes later")
		go func() {
			o := locker.RotateOptions{Options: locker.Options{Table: f.table}}
			if f.bySQL {
				done <- locker.Rotate(t.Context(), f.db, "other", o, nil)
			} else {
				done <- locker.Rotate(t.Context(), f.pool, "other", o, nil)
			}
		}()
		require.ErrorContains(t, receive(t, done), "closed", "rotate")
		require.NoError(t, holder.Release(t.Context()))
	})
}

// TestBlockTimeoutHolds checks that neither a pool without a free connection nor a row locked
// by another transaction exceeds the timeout.
func TestBlockTimeoutHolds(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		o := locker.Options{LockFor: longLease, Blocking: true, BlockTimeout: 50 * time.Millisecond}
		f.exec(t, "INSERT INTO %s (key) VALUES ('k')")
		tx := f.begin(t, "SELECT FROM %s FOR UPDATE")
		within(t, func() {
			ran, err := f.run(t, "k", o)
			require.False(t, ran)
			require.ErrorContains(t, err, "no answer within 50ms", "a row that is locked")
		})
		// pgx cancels a statement on another connection. The server ignores a cancel that arrives before the
		// statement itself, so the test cancels again.
		proctest.Await(t, 30*time.Second, func() bool {
			return value[int](t, f, "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", f.table) == 0
		}, "the end of what was tried")
		require.NoError(t, tx.Rollback(t.Context()))

		var free []func()
		for range 4 {
			if f.bySQL {
				conn, err := f.db.Conn(t.Context())
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				free = append(free, func() { _ = conn.Close() })
			} else {
				conn, err := f.pool.Acquire(t.Context())
				require.NoError(t, err)
				t.Cleanup(conn.Release)
				free = append(free, conn.Release)
			}
		}
		within(t, func() {
			ran, err := f.run(t, "k", o)
			require.False(t, ran)
			require.ErrorContains(t, err, "no answer within 50ms", "a pool that is used up")
		})
		for _, release := range free {
			release()
		}
		o.BlockTimeout = time.Minute
		ran, err := f.run(t, "k", o)
		require.NoError(t, err)
		require.True(t, ran, "what was tried in vain holds nothing")
	})
}

// TestDownAtTheStart checks that waiting for a lock includes waiting for the database.
func TestDownAtTheStart(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		config, err := pgxpool.ParseConfig(server.URL(""))
		require.NoError(t, err)
		dial := config.ConnConfig.DialFunc
		var refused atomic.Int64
		var up atomic.Bool
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if !up.Load() {
				refused.Add(1)
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, network, address)
		}
		f.pool, err = pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(f.pool.Close)
		f.db = stdlib.OpenDB(*config.ConnConfig)
		t.Cleanup(func() { _ = f.db.Close() })

		_, err = f.run(t, "k", locker.Options{})
		require.ErrorIs(t, err, syscall.ECONNREFUSED, "without Blocking it is an error")
		ran, err := f.run(t, "k", locker.Options{Blocking: true, BlockTimeout: 50 * time.Millisecond})
		require.False(t, ran)
		require.ErrorIs(t, err, syscall.ECONNREFUSED, "nobody has said that the lock is held")

		tries := refused.Load()
		told := make(chan error, 100)
		done := make(chan error, 1)
		go func() {
			ran, err := f.run(t, "k", locker.Options{Blocking: true, OnError: func(err error) {
				select {
				case told <- err:
				default:
				}
			}})
			if err == nil && !ran {
				err = errors.New("it has not run")
			}
			done <- err
		}()
		require.ErrorIs(t, receive(t, told), syscall.ECONNREFUSED)
		proctest.Await(t, 30*time.Second, func() bool { return refused.Load() > tries+2 }, "further tries")
		up.Store(true)
		require.NoError(t, receive(t, done))
	})
}

// TestForgottenStatements checks poolers that share connections by transaction and therefore
// keep no prepared statements.
func TestForgottenStatements(t *testing.T) {
	t.Parallel()
	f := setup(t)
	config, err := pgxpool.ParseConfig(server.URL(""))
	require.NoError(t, err)
	var forgot atomic.Int64
	forget := func(ctx context.Context, conn *pgx.Conn) error {
		forgot.Add(1)
		_, err := conn.Exec(ctx, "DEALLOCATE ALL")
		return err
	}
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		err := forget(ctx, conn)
		return err == nil, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	db := stdlib.OpenDB(*config.ConnConfig, stdlib.OptionResetSession(forget))
	defer func() { require.NoError(t, db.Close()) }()
	db.SetMaxOpenConns(1) // the next statement is on a connection that has forgotten it
	forgets(t, f, pool)
	forgets(t, f, db)
	require.Greater(t, forgot.Load(), int64(8))
	require.EqualValues(t, 10, value[int64](t, f, "SELECT sequence FROM %s WHERE key = 'k'"), "none is run twice")
}

// forgets uses a pool whose connections forget their statements.
func forgets[D locker.DB](t *testing.T, f *fixture, db D) {
	t.Helper()
	nothing := func(context.Context, int64) error { return nil }
	for range 5 {
		ran, err := locker.Run(t.Context(), db, "k", locker.Options{Table: f.table}, nothing)
		require.NoError(t, err)
		require.True(t, ran)
		_, err = locker.List(t.Context(), db, f.table)
		require.NoError(t, err)
		ran, err = locker.Advisory(t.Context(), db, f.table, locker.AdvisoryOptions{}, func(context.Context) error { return nil })
		require.NoError(t, err)
		require.True(t, ran)
	}
}

// TestColumnsThatMustBeFilled checks tables with Rails' time stamps, which have no default.
func TestColumnsThatMustBeFilled(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.exec(t, "ALTER TABLE %s ADD created_at timestamp(6) NOT NULL, ADD \"updated At\" timestamptz NOT NULL, ADD day date NOT NULL, ADD note text NOT NULL DEFAULT ''")
		ran, err := f.run(t, "new", locker.Options{})
		require.NoError(t, err)
		require.True(t, ran)
		require.Less(t, value[float64](t, f, "SELECT EXTRACT(EPOCH FROM clock_timestamp() AT TIME ZONE 'UTC' - created_at)::float8 FROM %s"), 60.0)
		n, err := locker.Prune(t.Context(), f.pool, f.table, 0)
		require.NoError(t, err)
		require.Zero(t, n)
		f.exec(t, "UPDATE %s SET locked_until = locked_until - interval '1 day'")
		n, err = locker.Prune(t.Context(), f.pool, f.table, 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		l := f.lock(t, "new", locker.Options{})
		got, err := l.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		require.EqualValues(t, 2, l.Sequence())

		f.exec(t, "ALTER TABLE %s ALTER note DROP DEFAULT")
		_, err = f.run(t, "newer", locker.Options{})
		require.ErrorContains(t, err, `column "note" (text) of table "`+f.table+`" must not be null and has no default`)
	})
}

// TestTableFaults checks that an error says how to repair the table.
func TestTableFaults(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.exec(t, "DROP INDEX index_%s_on_key")
		_, err := f.run(t, "k", locker.Options{})
		require.ErrorContains(t, err, "has no unique index on key, without which two can hold one lock; make it with: resqued locker migrate")
		f.exec(t, "ALTER TABLE %s DROP sequence")
		_, err = f.run(t, "k", locker.Options{})
		require.ErrorContains(t, err, `column "sequence" does not exist`)
		require.ErrorContains(t, err, "add what table \""+f.table+"\" lacks with: resqued locker migrate")
		_, err = locker.List(t.Context(), f.pool, f.table)
		require.ErrorContains(t, err, "resqued locker migrate")
		f.exec(t, "DROP TABLE %s")
		_, err = f.run(t, "k", locker.Options{})
		require.ErrorContains(t, err, "make the table with: resqued locker migrate")
	})
}
