//go:build linux

package locker_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/locker"
)

// server is the PostgreSQL of all tests that do not disturb theirs. Each test has its own
// table.
var server *pgtest.Server

// TestMain runs the tests, or a process of holders for the fault tests.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(holderMain())
	}
	goleak.VerifyTestMain(pgtest.Beside(m, &server))
}

// fixture is a table, and two pools.
type fixture struct {
	table string
	pool  *pgxpool.Pool
	db    *sql.DB
	// bySQL: locks are taken through database/sql.
	bySQL bool
}

var tables atomic.Int64

// newPool opens a pool whose connections have an application name, and settings: pairs of name and value.
func newPool(t *testing.T, url, name string, conns int32, params ...string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = conns
	config.ConnConfig.RuntimeParams["application_name"] = name
	for pair := range slices.Chunk(params, 2) {
		config.ConnConfig.RuntimeParams[pair[0]] = pair[1]
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func setup(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{table: fmt.Sprintf("locks%d", tables.Add(1))}
	f.open(t)
	require.NoError(t, locker.Migrate(t.Context(), f.pool, f.table))
	return f
}

// open gives the fixture pools whose connections have these settings.
func (f *fixture) open(t *testing.T, params ...string) {
	t.Helper()
	f.pool = newPool(t, server.URL(""), f.table, 4, params...)
	config := f.pool.Config().ConnConfig.Copy()
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { _ = db.Close() }) // not f.db, which a test may replace
	f.db = db
}

// begin opens a transaction that ends with the test, and executes a statement in it.
func (f *fixture) begin(t *testing.T, statement string) pgx.Tx {
	t.Helper()
	tx, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	// Before the pool is closed, which waits for it.
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(t.Context(), strings.ReplaceAll(statement, "%s", f.table))
	require.NoError(t, err)
	return tx
}

// both runs a test through pgx's pool and through database/sql.
func both(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	t.Run("pgxpool", func(t *testing.T) {
		t.Parallel()
		test(t, setup(t))
	})
	t.Run("database/sql", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.bySQL = true
		test(t, f)
	})
}

func (f *fixture) lock(t *testing.T, key string, o locker.Options) *locker.Lock {
	t.Helper()
	o.Table = f.table
	var l *locker.Lock
	var err error
	if f.bySQL {
		l, err = locker.New(f.db, key, o)
	} else {
		l, err = locker.New(f.pool, key, o)
	}
	require.NoError(t, err)
	return l
}

// exec runs SQL in which %s is the table.
func (f *fixture) exec(t *testing.T, statement string, args ...any) int64 {
	t.Helper()
	tag, err := f.pool.Exec(t.Context(), strings.ReplaceAll(statement, "%s", f.table), args...)
	require.NoError(t, err)
	return tag.RowsAffected()
}

// value returns the result of a query for one value.
func value[T any](t *testing.T, f *fixture, query string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, f.pool.QueryRow(t.Context(), strings.ReplaceAll(query, "%s", f.table), args...).Scan(&v))
	return v
}

func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(30 * time.Second):
		t.Fatal("waited for 30 s")
	}
	return v
}

// quick are options with frequent renewals and with leases that are long enough for a slow
// machine.
var quick = locker.Options{LockFor: 10 * time.Second, RenewEvery: 100 * time.Millisecond}
