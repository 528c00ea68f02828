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

// gem locks by the statements of the Ruby gem.
type gem struct {
	f       *fixture
	id, key string
}

const (
	gemEnsure = `INSERT INTO %s (key) SELECT $1::text WHERE NOT EXISTS (SELECT FROM %s WHERE key = $1)`
	gemGet    = `UPDATE %s SET locked_by = $2, locked_at = clock_timestamp() at time zone 'UTC',
		locked_until = clock_timestamp() at time zone 'UTC' + interval '30 seconds', sequence = sequence + 1
		WHERE key = $1 AND (locked_by IS NULL OR locked_by = $2 OR locked_until < clock_timestamp() at time zone 'UTC')`
	gemRenew = `UPDATE %s SET locked_until = clock_timestamp() at time zone 'UTC' + interval '30 seconds'
		WHERE key = $1 AND locked_by = $2`
	gemRelease = `UPDATE %s SET locked_by = NULL WHERE key = $1 AND locked_by = $2`
)

func (f *fixture) gem(t *testing.T, key string) *gem {
	t.Helper()
	f.exec(t, gemEnsure, key)
	return &gem{f, "host:ruby pid:811 guid:" + key, key}
}

func (g *gem) run(t *testing.T, statement string) bool {
	t.Helper()
	return g.f.exec(t, statement, g.key, g.id) > 0
}

func TestBesideTheGem(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		// The table of the gem's generator, as Rails writes it.
		f.exec(t, `DROP TABLE %s`)
		f.exec(t, `CREATE TABLE %s (id serial PRIMARY KEY, locked_by character varying(255), key character varying(255),
			sequence bigint DEFAULT 0, locked_at timestamp, locked_until timestamp)`)
		f.exec(t, `CREATE UNIQUE INDEX index_%s_on_key ON %s USING btree (key)`)

		ruby, ours := f.gem(t, "k"), f.lock(t, "k", locker.Options{})
		require.True(t, ruby.run(t, gemGet))
		got, err := ours.Get(t.Context())
		require.NoError(t, err)
		require.False(t, got)
		require.Equal(t, ruby.id, ours.Holder().LockedBy)
		require.InDelta(t, 30, ours.Holder().Left.Seconds(), 10)
		require.True(t, ruby.run(t, gemRenew))
		require.True(t, ruby.run(t, gemRelease))

		got, err = ours.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		require.EqualValues(t, 2, ours.Sequence(), "both count together")
		require.False(t, ruby.run(t, gemGet))
		require.False(t, ruby.run(t, gemRenew))
		require.False(t, ruby.run(t, gemRelease))
		require.NoError(t, ours.Renew(t.Context()))

		f.exec(t, "UPDATE %s SET locked_until = clock_timestamp() AT TIME ZONE 'UTC' - interval '1 ms'")
		require.True(t, ruby.run(t, gemGet), "the gem takes over from us")
		require.ErrorIs(t, ours.Renew(t.Context()), locker.ErrLockStolen)
		f.exec(t, "UPDATE %s SET locked_until = clock_timestamp() AT TIME ZONE 'UTC' - interval '1 ms'")
		got, err = ours.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got, "we take over from the gem")
		require.False(t, ruby.run(t, gemRenew))
		require.EqualValues(t, 4, ours.Sequence())
		require.NoError(t, ours.Release(t.Context()))

		// A session in another time zone sees the same times.
		f.exec(t, "SET TIME ZONE 'Asia/Tokyo'")
		require.True(t, ruby.run(t, gemGet))
		got, err = ours.Get(t.Context())
		require.NoError(t, err)
		require.False(t, got)
	})
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	columns := `SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY column_name) FROM information_schema.columns
		WHERE table_schema || '.' || table_name = $1`
	want := "id bigint, key character varying, locked_at timestamp without time zone, locked_by character varying, " +
		"locked_until timestamp without time zone, sequence bigint"
	indexes := `SELECT count(*) FROM pg_indexes WHERE schemaname || '.' || tablename = $1`

	t.Run("again, and by many at once", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.exec(t, "DROP TABLE %s")
		done := make(chan error, 8)
		for n := range cap(done) {
			go func() {
				if n%2 == 0 {
					done <- locker.Migrate(context.Background(), f.pool, f.table)
				} else {
					done <- locker.Migrate(context.Background(), f.db, f.table)
				}
			}()
		}
		for range cap(done) {
			require.NoError(t, receive(t, done))
		}
		require.Equal(t, want, value[string](t, f, columns, "public."+f.table))
		require.Equal(t, 2, value[int](t, f, indexes, "public."+f.table))
		require.Equal(t, 1, value[int](t, f, "SELECT count(*) FROM pg_class WHERE relname = 'index_%s_on_key'"))
	})
	t.Run("a schema and a name that need quotes", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.exec(t, `CREATE SCHEMA "a %s"`)
		table := "a " + f.table + `.Locks"; DROP TABLE x; --`
		for range 2 {
			require.NoError(t, locker.Migrate(t.Context(), f.pool, table))
		}
		require.Equal(t, want, value[string](t, f, columns, table))
		ran, err := locker.Run(t.Context(), f.pool, "k", locker.Options{Table: table}, func(context.Context, int64) error { return nil })
		require.NoError(t, err)
		require.True(t, ran)
	})
	t.Run("the gem's first table gets what it lacks", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.exec(t, `DROP TABLE %s`)
		f.exec(t, `CREATE TABLE %s (id serial PRIMARY KEY, locked_by varchar, key varchar, locked_at timestamp, locked_until timestamp)`)
		f.exec(t, `CREATE UNIQUE INDEX other_%s ON %s (key)`)
		f.exec(t, `INSERT INTO %s (key) VALUES ('old')`)
		require.NoError(t, locker.Migrate(t.Context(), f.pool, f.table))
		require.Equal(t, 2, value[int](t, f, indexes, "public."+f.table))
		l := f.lock(t, "old", locker.Options{})
		got, err := l.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		require.EqualValues(t, 1, l.Sequence())
	})
	t.Run("times with a time zone are refused", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.exec(t, `ALTER TABLE %s ALTER locked_until TYPE timestamptz`)
		err := locker.Migrate(t.Context(), f.pool, f.table)
		require.ErrorContains(t, err, "have a time zone")
	})
	t.Run("keys that occur twice are refused", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.exec(t, `DROP INDEX index_%s_on_key`)
		_, err := f.lock(t, "k", locker.Options{}).Get(t.Context())
		require.Error(t, err, "without the index there is no lock")
		f.exec(t, `INSERT INTO %s (key) VALUES ('a'), ('a')`)
		require.Error(t, locker.Migrate(t.Context(), f.pool, f.table))
	})
}

func TestTable(t *testing.T) {
	t.Parallel()
	f := setup(t)
	held, released := f.lock(t, "held", locker.Options{}), f.lock(t, "released", locker.Options{})
	for _, l := range []*locker.Lock{held, released} {
		for range 3 {
			got, err := l.Get(t.Context())
			require.NoError(t, err)
			require.True(t, got)
		}
	}
	require.NoError(t, released.Release(t.Context()))
	f.exec(t, `INSERT INTO %s (key, locked_by, locked_at, locked_until, sequence)
		VALUES ('dead', 'x', now() AT TIME ZONE 'UTC' - interval '2 days', now() AT TIME ZONE 'UTC' - interval '2 days', 70)`)
	names := func(rows []locker.Row) string {
		var all []string
		for _, r := range rows {
			all = append(all, r.Key)
		}
		return strings.Join(all, " ")
	}

	rows, err := locker.List(t.Context(), f.pool, f.table)
	require.NoError(t, err)
	require.Equal(t, "dead held released", names(rows))
	require.False(t, rows[0].Held())
	require.Less(t, rows[0].Left, -47*time.Hour)
	require.True(t, rows[1].Held())
	require.Equal(t, held.Identifier(), rows[1].LockedBy)
	require.EqualValues(t, 3, rows[1].Sequence)
	require.Less(t, rows[1].Age, time.Minute)
	require.False(t, rows[2].Held())
	locked, err := locker.ListLocked(t.Context(), f.pool, f.table, 10)
	require.NoError(t, err)
	require.Equal(t, "dead held", names(locked))
	locked, err = locker.ListLocked(t.Context(), f.db, f.table, 1)
	require.NoError(t, err)
	require.Equal(t, "dead", names(locked))
	some, err := locker.List(t.Context(), f.db, f.table, "held", "none")
	require.NoError(t, err)
	require.Equal(t, "held", names(some))

	broken, err := locker.Break(t.Context(), f.pool, f.table, rows[1])
	require.NoError(t, err)
	require.True(t, broken)
	broken, err = locker.Break(t.Context(), f.db, f.table, rows[1])
	require.NoError(t, err)
	require.False(t, broken)
	require.ErrorIs(t, held.Renew(t.Context()), locker.ErrLockStolen)

	n, err := locker.Prune(t.Context(), f.pool, f.table, 24*time.Hour)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	rows, err = locker.List(t.Context(), f.pool, f.table)
	require.NoError(t, err)
	require.Equal(t, "held released", names(rows))
	for key, want := range map[string]int64{"dead": 71, "new": 71, "held": 4} {
		l := f.lock(t, key, locker.Options{})
		got, err := l.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		require.Equal(t, want, l.Sequence(), "%s goes on above all that was pruned", key)
	}
	f.exec(t, `INSERT INTO %s (key, locked_until, sequence) SELECT 'k' || n, now() AT TIME ZONE 'UTC' - interval '1 hour', n FROM generate_series(1, 2500) n`)
	n, err = locker.Prune(t.Context(), f.db, f.table, time.Minute)
	require.NoError(t, err)
	require.EqualValues(t, 2500, n)
	l := f.lock(t, "k7", locker.Options{})
	_, err = l.Get(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2501, l.Sequence())
}
