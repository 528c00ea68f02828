//go:build linux

package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/locker"
)

// zoned returns a pool whose sessions are in a time zone.
func zoned(t *testing.T, zone string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(server.URL(""))
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["timezone"] = zone
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestTimesWithAZone checks that a table whose times have a time zone is refused, because
// sessions in different zones would not agree on the end of a lease. Every entry point refuses
// it, also on a connection that knew the table before.
func TestTimesWithAZone(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		held := f.lock(t, "held", locker.Options{})
		got, err := held.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		rows, err := locker.List(t.Context(), f.pool, f.table)
		require.NoError(t, err)

		f.exec(t, "ALTER TABLE %s ALTER locked_at TYPE timestamptz USING locked_at AT TIME ZONE 'UTC', ALTER locked_until TYPE timestamptz USING locked_until AT TIME ZONE 'UTC'")
		tokyo := zoned(t, "Asia/Tokyo")
		refused := func(name string, err error) {
			t.Helper()
			require.ErrorContains(t, err, "have a time zone", name)
			require.ErrorContains(t, err, `run: ALTER TABLE "`+f.table+`" ALTER locked_at TYPE timestamp USING locked_at AT TIME ZONE 'UTC'`, name)
		}
		ran, err := locker.Run(t.Context(), tokyo, "held", locker.Options{Table: f.table}, func(context.Context, int64) error { return nil })
		require.False(t, ran, "two holders")
		refused("run", err)
		_, err = f.lock(t, "new", locker.Options{}).Get(t.Context())
		refused("get", err)
		refused("renew", held.Renew(t.Context()))
		_, err = locker.List(t.Context(), tokyo, f.table)
		refused("list", err)
		_, err = locker.ListLocked(t.Context(), f.pool, f.table, 3)
		refused("list of the locked", err)
		_, err = locker.Extend(t.Context(), tokyo, f.table, time.Minute, rows)
		refused("extend", err)
		_, err = locker.Revoke(t.Context(), tokyo, f.table, rows[0])
		refused("revoke", err)
		_, err = locker.Prune(t.Context(), tokyo, f.table, 0)
		refused("prune", err)
		refused("migrate", locker.Migrate(t.Context(), tokyo, f.table))

		// The statement in the message repairs it while the lock is held.
		f.exec(t, "ALTER TABLE %s ALTER locked_at TYPE timestamp USING locked_at AT TIME ZONE 'UTC', ALTER locked_until TYPE timestamp USING locked_until AT TIME ZONE 'UTC'")
		require.NoError(t, held.Renew(t.Context()))
		ran, err = locker.Run(t.Context(), tokyo, "held", locker.Options{Table: f.table}, nil)
		require.NoError(t, err)
		require.False(t, ran)
		require.NoError(t, held.Release(t.Context()))
	})
}
