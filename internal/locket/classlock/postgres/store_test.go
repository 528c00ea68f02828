package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/locket/classlock/postgres"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/locker"
)

var server *pgtest.Server

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Beside(m, &server)) }

type fixture struct {
	*postgres.Store
	table string
	pool  *pgxpool.Pool
}

var tables atomic.Int64

func setup(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{table: fmt.Sprintf("locks%d", tables.Add(1))}
	var err error
	f.pool, err = pgxpool.New(t.Context(), server.URL(""))
	require.NoError(t, err)
	t.Cleanup(f.pool.Close)
	require.NoError(t, locker.Migrate(t.Context(), f.pool, f.table))
	f.Store = f.open(t, server.URL(""))
	return f
}

func (f *fixture) open(t *testing.T, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(postgres.Config{URL: url, Table: f.table, Namespace: "ns", Lease: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (f *fixture) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := f.pool.Exec(t.Context(), strings.ReplaceAll(statement, "%s", f.table))
	require.NoError(t, err)
}

func (f *fixture) row(t *testing.T) locker.Row {
	t.Helper()
	rows, err := locker.List(t.Context(), f.pool, f.table)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	return rows[0]
}

func of(token string) store.HeldLock {
	return store.HeldLock{Proc: "p1", Token: token, Key: "lock:Graph:7", Timeout: time.Minute, Elsewhere: true}
}

func (f *fixture) acquire(t *testing.T, token string) store.AcquireReply {
	t.Helper()
	reply, err := f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: of(token)})
	require.NoError(t, err)
	return reply
}

func TestLocks(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.Equal(t, store.AcquireReply{Got: true, Sequence: 1}, f.acquire(t, "1"))
	r := f.row(t)
	require.Equal(t, "ns:lock:Graph:7", r.Key)
	require.Regexp(t, `^host:\S+ pid:\d+ guid:[0-9a-f]{32}$`, r.LockedBy)
	require.Equal(t, store.AcquireReply{Holder: r.LockedBy}, f.acquire(t, "2"))
	require.True(t, f.acquire(t, "1").Got, "it may be asked for again")

	state, err := f.LockState(t.Context(), "lock:Graph:7", true)
	require.NoError(t, err)
	require.Equal(t, store.LockState{Holder: r.LockedBy}, state)

	// Others that know only the table cannot take the lock.
	ran, err := locker.Run(t.Context(), f.pool, r.Key, locker.Options{Table: f.table}, nil)
	require.NoError(t, err)
	require.False(t, ran)

	// Its lease lasts as long as it is extended.
	f.exec(t, "UPDATE %s SET locked_until = clock_timestamp() AT TIME ZONE 'UTC' + interval '5 seconds'")
	lost, err := f.KeepLocks(t.Context(), []store.HeldLock{of("2"), of("1")})
	require.NoError(t, err)
	require.Equal(t, []int{0}, lost)
	require.Greater(t, f.row(t).Left, 20*time.Second)
	f.exec(t, "UPDATE %s SET locked_until = clock_timestamp() AT TIME ZONE 'UTC' + interval '5 seconds'")
	reply, err := f.RefreshLock(t.Context(), of("1"))
	require.NoError(t, err)
	require.True(t, reply.Got)
	require.Greater(t, f.row(t).Left, 20*time.Second)

	// Only its holder can release it.
	require.NoError(t, f.ReleaseLock(t.Context(), of("2")))
	require.True(t, f.row(t).Held())
	require.NoError(t, f.ReleaseLock(t.Context(), of("1")))
	require.False(t, f.row(t).Held())
	state, err = f.LockState(t.Context(), "lock:Graph:7", true)
	require.NoError(t, err)
	require.Empty(t, state.Holder)
	reply, err = f.RefreshLock(t.Context(), of("1"))
	require.NoError(t, err)
	require.Equal(t, store.AcquireReply{}, reply)

	// The lock of a dead holder can be taken.
	f.acquire(t, "1")
	f.exec(t, "UPDATE %s SET locked_until = clock_timestamp() AT TIME ZONE 'UTC' - interval '1 ms'")
	next := f.acquire(t, "2")
	require.True(t, next.Got)
	reply, err = f.RefreshLock(t.Context(), of("1"))
	require.NoError(t, err)
	require.Equal(t, store.AcquireReply{Holder: f.row(t).LockedBy}, reply)
	require.EqualValues(t, 4, next.Sequence)
}

func TestLongKeys(t *testing.T) {
	t.Parallel()
	f := setup(t)
	text := strings.Repeat("é", 2000)
	for n, key := range []string{text + "1", text + "2"} {
		l := of(fmt.Sprint(n))
		l.Key = key
		reply, err := f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: l})
		require.NoError(t, err)
		require.True(t, reply.Got, "each is a lock of its own")
		lost, err := f.KeepLocks(t.Context(), []store.HeldLock{l})
		require.NoError(t, err)
		require.Empty(t, lost)
		state, err := f.LockState(t.Context(), key, true)
		require.NoError(t, err)
		require.NotEmpty(t, state.Holder)
	}
}

// TestKeepersHaveAConnection checks that jobs that wait for a row or for a connection do not
// prevent the extension of leases.
func TestKeepersHaveAConnection(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.True(t, f.acquire(t, "1").Got)
	f.exec(t, "INSERT INTO %s (key) VALUES ('ns:busy')")
	tx, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "SELECT FROM "+f.table+" WHERE key = 'ns:busy' FOR UPDATE")
	require.NoError(t, err)
	results := make(chan error, 10)
	for n := range cap(results) {
		go func() {
			l := of(fmt.Sprint("busy ", n))
			l.Key = "busy"
			_, err := f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: l})
			results <- err
		}()
	}
	require.Eventually(t, func() bool {
		var waiting int
		err := f.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%"+f.table+"%'").Scan(&waiting)
		return err == nil && waiting == 3
	}, 30*time.Second, 10*time.Millisecond)
	lost, err := f.KeepLocks(t.Context(), []store.HeldLock{of("1")})
	require.NoError(t, err)
	require.Empty(t, lost)
	require.NoError(t, tx.Rollback(t.Context()))
	for range cap(results) {
		require.NoError(t, <-results)
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	broken := func(err error) bool {
		e, ok := err.(interface{ LockBroken() bool })
		return ok && e.LockBroken()
	}
	t.Run("what waiting does not mend is told apart from what it does", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.exec(t, "DROP TABLE %s")
		_, err := f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: of("1")})
		require.ErrorContains(t, err, "make the table with: resqued locker migrate")
		require.True(t, broken(err))
		require.NoError(t, locker.Migrate(t.Context(), f.pool, f.table))
		l := of("1")
		l.Key = "a\x00"
		_, err = f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: l})
		require.True(t, broken(err), "%v", err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = f.AcquireLock(ctx, store.AcquireRequest{HeldLock: of("1")})
		require.Error(t, err)
		require.False(t, broken(err))
	})
	t.Run("no password is shown", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		s := f.open(t, "postgres://me:hunter2@127.0.0.1:1/app")
		require.Equal(t, "postgres 127.0.0.1/app", s.Where())
		_, err := s.KeepLocks(t.Context(), []store.HeldLock{of("1")})
		require.ErrorContains(t, err, "refused")
		require.NotContains(t, err.Error(), "hunter2")
		require.False(t, broken(err))
		_, err = postgres.Open(postgres.Config{URL: "postgres://me:hunt%er2@h/" + url.PathEscape("a b")})
		require.ErrorContains(t, err, "URL of the database is not valid")
		require.NotContains(t, err.Error(), "er2")
	})
}

// A connection that does not come back, for its server hangs, keeps no process from leaving.
func TestClosePool(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), server.URL(""))
	require.NoError(t, err)
	used, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		postgres.ClosePool(pool)
	}()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		require.Fail(t, "it waits for the connection")
	}
	used.Release() // what waits still ends now
}
