//go:build unix

package sqlscan_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
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

func TestScanDestroy(t *testing.T) {
	t.Parallel()

	t.Run("each row is handed over in order, and what is done with it in the transaction is kept", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{MaxUnits: 1})
		b.sql(files)
		var seen []int64
		run := b.completes(b.destroys("id > 20", sqlscan.Options{Batch: 10}, func(ctx context.Context, r *longjob.Runner, tx pgx.Tx, f file) error {
			seen = append(seen, f.ID)
			n, err := longjob.State(r, "n", 0)
			if err != nil {
				return err
			}
			r.Message(f.Name)
			if err := longjob.SetState(r, "n", n+1); err != nil {
				return err
			}
			if n == 0 { // the planner is not restricted in a function's statements
				for _, setting := range []string{"enable_sort", "enable_hashjoin", "enable_mergejoin", "jit"} {
					var value string
					require.NoError(t, tx.QueryRow(ctx, "SHOW "+setting).Scan(&value))
					require.Equal(t, "on", value, setting)
				}
			}
			_, err = tx.Exec(ctx, "INSERT INTO log VALUES ($1)", n+1)
			return err
		}))
		require.Len(t, seen, 80)
		require.True(t, slices.IsSorted(seen))
		require.Equal(t, "20 20", b.text("SELECT count(*) || ' ' || max(id) FROM t"))
		require.Equal(t, "80 80", b.text("SELECT count(*) || ' ' || max(id) FROM log"))
		require.EqualValues(t, 80, run.Steps[0].Done)
		require.Equal(t, "f100", run.Message)
		require.Equal(t, 9, run.Slices)
	})

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
			err := tx.QueryRow(ctx, "SELECT concat_ws(' ', current_setting('datestyle'), current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('enable_sort'))").Scan(&text)
			seen[text]++
			return err
		}))
		require.Equal(t, map[string]int{"SQL, DMY force_generic_plan off on": 100}, seen)
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
	})

	t.Run("an error undoes its batch, and no other", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1})
		b.sql(files)
		calls := 0
		broken := errors.New("broken")
		fn := b.destroys("", sqlscan.Options{Batch: 10}, func(ctx context.Context, r *longjob.Runner, tx pgx.Tx, f file) error {
			calls++
			if err := longjob.SetState(r, "last", f.ID); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO log VALUES ($1)", f.ID)
			if f.ID == 25 && broken != nil {
				return broken
			}
			return err
		})
		run := b.run(fn)
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "broken")
		require.Equal(t, 25, calls)
		require.Equal(t, "80", b.text("SELECT count(*) FROM t"))
		require.Equal(t, "20", b.text("SELECT max(id) FROM log"))
		require.Equal(t, "20", string(run.State["last"]))
		broken = nil
		require.NoError(t, b.Requeue(t.Context(), run.UUID))
		require.Equal(t, longjob.StatusCompleted, b.goOn(run.UUID).Status)
		require.Equal(t, "100", b.text("SELECT count(DISTINCT id) FROM log"))
		require.Equal(t, "100", b.text("SELECT count(*) FROM log"))
		require.Equal(t, 105, calls, "at most the batch is repeated")
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

	t.Run("rows that others have locked come last", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		tx := b.begin("UPDATE t SET name = 'changed' WHERE id IN (5, 6, 95)")
		var seen []file
		b.completes(b.destroys("name <> 'x'", sqlscan.Options{Batch: 10, KeepRows: true, HoldFor: time.Nanosecond}, func(ctx context.Context, _ *longjob.Runner, _ pgx.Tx, f file) error {
			if seen = append(seen, f); len(seen) == 97 {
				_, err := tx.Exec(ctx, "UPDATE t SET name = 'x' WHERE id = 6")
				return errors.Join(err, tx.Commit(ctx))
			}
			return nil
		}))
		require.Equal(t, []file{{5, "changed"}, {95, "changed"}}, seen[97:])
		require.Equal(t, "100", b.text("SELECT count(*) FROM t"), "KeepRows")
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

	t.Run("a function that takes longer than a transaction may stand still is not called again and again", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1})
		b.sql(files)
		calls := 0
		run := b.run(b.destroys("", sqlscan.Options{Batch: 1, IdleTimeout: 50 * time.Millisecond}, func(context.Context, *longjob.Runner, pgx.Tx, file) error {
			calls++
			<-time.After(100 * time.Millisecond)
			for b.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state = 'idle in transaction'", b.pool.Config().ConnConfig.RuntimeParams["application_name"]) != "0" {
				<-time.After(10 * time.Millisecond)
			}
			return nil
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Equal(t, 1, calls, run.Error)
		require.Contains(t, run.Error, "IdleTimeout")
		require.Equal(t, "100", b.text("SELECT count(*) FROM t"))
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

	t.Run("a panic leaves nothing locked", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1})
		b.sql(files)
		run := b.run(b.destroys("", sqlscan.Options{}, func(context.Context, *longjob.Runner, pgx.Tx, file) error { panic("as it should") }))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "as it should")
		b.sql("SELECT FROM t FOR UPDATE NOWAIT")
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
