//go:build unix

package sqlscan_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

type file struct {
	ID   int64
	Name string
}

const files = `CREATE TABLE t (id bigint PRIMARY KEY, name text NOT NULL);
	INSERT INTO t SELECT i, 'f' || i FROM generate_series(1, 100) i;
	CREATE TABLE log (id bigint)`

// destroys returns a function that calls fn for rows of table t.
func (b *bed) destroys(where string, o sqlscan.Options, fn func(ctx context.Context, r *longjob.Runner, tx pgx.Tx, f file) error) func(ctx context.Context, r *longjob.Runner) error {
	o.HoldFor, o.StatementTimeout = cmp.Or(o.HoldFor, time.Hour), cmp.Or(o.StatementTimeout, time.Minute) // the size of a batch must not depend on the machine
	return func(ctx context.Context, r *longjob.Runner) error {
		return sqlscan.ScanDestroy(ctx, r, "destroy", b.pool, sqlscan.Query{Table: pgx.Identifier{"t"}, Where: where}, o, pgx.RowToStructByName[file],
			func(ctx context.Context, tx pgx.Tx, f file) error { return fn(ctx, r, tx, f) })
	}
}

func TestScanDestroyPostgres(t *testing.T) {
	t.Parallel()

	t.Run("a map, and some of the columns", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		var got []map[string]any
		b.completes(func(ctx context.Context, r *longjob.Runner) error {
			q := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "id < 3", Columns: []string{"name"}}
			return sqlscan.ScanDestroy(ctx, r, "destroy", b.pool, q, sqlscan.Options{}, pgx.RowToMap, func(_ context.Context, _ pgx.Tx, row map[string]any) error {
				got = append(got, row)
				return nil
			})
		})
		require.Equal(t, []map[string]any{{"name": "f1"}, {"name": "f2"}}, got)
	})

	t.Run("a function has the settings of its session", func(t *testing.T) {
		t.Parallel()
		b := setupAt(t, server, longjob.Options{}, "&datestyle=SQL,DMY&plan_cache_mode=force_generic_plan&enable_seqscan=off")
		b.sql(files)
		seen := map[string]int{}
		b.completes(b.destroys("", sqlscan.Options{Batch: 30}, func(ctx context.Context, _ *longjob.Runner, tx pgx.Tx, _ file) error {
			var text string
			err := tx.QueryRow(ctx, "SELECT concat_ws(' ', current_setting('datestyle'), current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('enable_sort'), current_setting('enable_hashjoin'), current_setting('enable_mergejoin'), current_setting('jit'))").Scan(&text)
			seen[text]++
			return err
		}))
		require.Equal(t, map[string]int{"SQL, DMY force_generic_plan off on on on on": 100}, seen)
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
	})

	t.Run("what a function has set is forgotten with its transaction", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		b.sql(raises("tries IN (2, 4)", "40P01"))
		calls := 0
		b.completes(b.destroys("", sqlscan.Options{Batch: 50}, func(ctx context.Context, r *longjob.Runner, tx pgx.Tx, _ file) error {
			calls++
			n, err := longjob.State(r, "n", 0)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "INSERT INTO log VALUES ($1)", n+1); err != nil {
				return err
			}
			return longjob.SetState(r, "n", n+1)
		}))
		require.Equal(t, 150, calls)
		require.Equal(t, "100 100", b.text("SELECT count(*) || ' ' || max(id) FROM log"))
	})

	t.Run("locks are held for a time, not for a batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		run := b.completes(b.destroys("", sqlscan.Options{HoldFor: time.Nanosecond}, func(_ context.Context, _ *longjob.Runner, _ pgx.Tx, f file) error {
			require.Equal(t, "100", b.text("SELECT $1::int + count(*) FROM t", f.ID-1), "each row is a batch")
			return nil
		}))
		require.GreaterOrEqual(t, run.Units, int64(100))
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
	})

	t.Run("a function may delete rows itself", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		run := b.completes(b.destroys("", sqlscan.Options{Batch: 30}, func(ctx context.Context, _ *longjob.Runner, tx pgx.Tx, f file) error {
			_, err := tx.Exec(ctx, "DELETE FROM t WHERE id = $1", f.ID)
			return err
		}))
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
		require.EqualValues(t, 100, run.Steps[0].Done)
	})

	t.Run("a connection that is cut while a function uses it", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		calls := 0
		run := b.completes(b.destroys("", sqlscan.Options{Batch: 50}, func(ctx context.Context, _ *longjob.Runner, tx pgx.Tx, f file) error {
			statement := "INSERT INTO log VALUES ($1)"
			if calls++; calls == 70 {
				statement = "SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(60 * $1::bigint)"
			}
			_, err := tx.Exec(ctx, statement, f.ID)
			return err
		}))
		require.Equal(t, 120, calls)
		require.Equal(t, 1, run.Slices)
		require.Equal(t, "100 100", b.text("SELECT count(*) || ' ' || count(DISTINCT id) FROM log"))
	})

	t.Run("a function may put the run off, or end it", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		run := b.run(b.destroys("", sqlscan.Options{}, func(context.Context, *longjob.Runner, pgx.Tx, file) error { return resqued.Discard }))
		require.Equal(t, longjob.StatusCompleted, run.Status)
		require.Equal(t, "100", b.text("SELECT count(*) FROM t"))
	})
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	b := setup(t, longjob.Options{})
	b.sql("CREATE TABLE shops (id bigint, name text, closed boolean); INSERT INTO shops VALUES (3, 'c', false), (1, 'a', false), (2, 'b', true), (NULL, 'n', false)")
	got, err := sqlscan.Subjects(b.pool, "SELECT id FROM shops WHERE closed = $1 ORDER BY name -- all", false)(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"1", "3"}, got)
	got, err = sqlscan.Subjects(b.pool, "SELECT name FROM shops WHERE false")(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = sqlscan.Subjects(b.pool, "SELECT name, id FROM shops WHERE id = 3")(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, got)
	_, err = sqlscan.Subjects(b.pool, "SELECT nothing FROM shops")(t.Context())
	require.ErrorContains(t, err, "nothing")
}

// If columns and types change during a scan its statements are prepared again, including those
// of its function.
func TestTheTableIsAltered(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"a column is added":     "ALTER TABLE t ADD COLUMN note text",
		"the key gets wider":    "ALTER TABLE t ALTER COLUMN id TYPE bigint",
		"a column gets a limit": "ALTER TABLE t ALTER COLUMN name TYPE varchar(99)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{Retries: -1, MaxUnits: 1})
			b.sql("CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t SELECT i, 'f' FROM generate_series(1, 50) i; CREATE TABLE log (id bigint, n int)")
			seen := map[int64]int{}
			var altering sync.WaitGroup
			defer altering.Wait()
			b.completes(func(ctx context.Context, r *longjob.Runner) error {
				q, o := sqlscan.Query{Table: pgx.Identifier{"t"}}, sqlscan.Options{Batch: 5, HoldFor: time.Hour}
				scan := func(row pgx.CollectableRow) (m map[string]any, err error) { return pgx.RowToMap(row) }
				return sqlscan.ScanDestroy(ctx, r, "destroy", b.pool, q, o, scan, func(ctx context.Context, tx pgx.Tx, row map[string]any) error {
					rows, err := tx.Query(ctx, "SELECT * FROM t ORDER BY id LIMIT 1")
					if err != nil {
						return err
					}
					rows.Close()
					if rows.Err() != nil {
						return rows.Err()
					}
					_, err = tx.Exec(ctx, "INSERT INTO log VALUES ($1, 1)", row["id"])
					id := int64(0)
					switch n := row["id"].(type) {
					case int32:
						id = int64(n)
					case int64:
						id = n
					}
					if seen[id]++; id == 25 { // the last one of its batch, as soon as its locks are free
						altering.Go(func() { _, _ = b.other.Exec(context.Background(), change) })
					}
					return err
				})
			})
			require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
			require.Equal(t, "50", b.text("SELECT count(*) FROM log"))
		})
	}
}

func TestReviewOfATableThatIsAltered(t *testing.T) {
	t.Parallel()
	b := setup(t, longjob.Options{Retries: -1, MaxUnits: 1})
	b.sql("CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL); INSERT INTO t SELECT i, 'f' FROM generate_series(1, 50) i")
	calls := 0
	b.completes(func(ctx context.Context, r *longjob.Runner) error {
		q, o := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "name <> 'done'"}, sqlscan.Options{Batch: 5, HoldFor: time.Hour}
		return sqlscan.ReviewingSelectLoop(ctx, r, "review", b.pool, q, o, pgx.RowToMap, func(_ context.Context, row map[string]any) error {
			if calls++; calls == 13 {
				b.sql("ALTER TABLE t ALTER COLUMN id TYPE bigint")
				b.sql("ALTER TABLE t ADD COLUMN note text")
			}
			b.sql("UPDATE t SET name = 'done' WHERE id = $1", row["id"])
			return nil
		})
	})
	require.Equal(t, 50, calls)
}
