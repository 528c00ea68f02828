//go:build unix

package sqlscan_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// deletes is a function that deletes rows of table t.
func (b *bed) deletes(where string, o sqlscan.Options, args ...any) func(ctx context.Context, r *longjob.Runner) error {
	o.StatementTimeout = cmp.Or(o.StatementTimeout, time.Minute) // the size of a batch must not depend on the machine
	return func(ctx context.Context, r *longjob.Runner) error {
		return sqlscan.ScanDelete(ctx, r, "delete", b.pool, sqlscan.Query{Table: pgx.Identifier{"t"}, Where: where, Args: args}, o)
	}
}

func TestScanDeletePostgres(t *testing.T) {
	t.Parallel()
	small := sqlscan.Options{Batch: 10}

	t.Run("a step that is done does nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{MaxUnits: 1})
		b.sql("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 30)")
		fn := b.deletes("", small)
		b.completes(func(ctx context.Context, r *longjob.Runner) error {
			if err := fn(ctx, r); err != nil {
				return err
			}
			return r.WorkOnce(ctx, "more", func(context.Context) error {
				b.sql("INSERT INTO t SELECT generate_series(1, 20)")
				return nil
			})
		})
		require.Equal(t, "20", b.text("SELECT count(*) FROM t"))
	})

	t.Run("the planner tells about how many there are", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ total, want int64 }{{0, 500}, {77, 77}, {-1, 0}} {
			b := setup(t, longjob.Options{MaxUnits: 1})
			b.sql("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000); ANALYZE t")
			b.fn = b.deletes("id <= $1", sqlscan.Options{Batch: 10, Total: c.total}, 500)
			res, err := b.Enqueue(t.Context(), "Scan", nil)
			require.NoError(t, err)
			_, _ = b.slice()
			run, err := b.Get(t.Context(), res.UUID)
			require.NoError(t, err)
			require.EqualValues(t, 10, run.Steps[0].Done)
			require.InDelta(t, c.want, run.Steps[0].Total, 5)
		}
	})

	t.Run("rows that come and go", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql("CREATE TABLE t (id bigint PRIMARY KEY, kind text); INSERT INTO t SELECT 10 * i, 'drop' FROM generate_series(1, 100) i")
		n := 0
		b.watch.on("DELETE", func() {
			if n++; n == 3 { // the next batch deletes rows 210 to 300, and rows inserted between them
				b.sql("INSERT INTO t SELECT 10 * i + 5, 'drop' FROM generate_series(0, 120) i")
				b.sql("DELETE FROM t WHERE id IN (500, 510)")
				b.sql("UPDATE t SET kind = 'keep' WHERE id IN (600, 610)")
			}
		})
		b.completes(b.deletes("kind = 'drop'", small))
		var want []string
		for i := 5; i < 200; i += 10 { // already passed
			want = append(want, fmt.Sprint(i))
		}
		want = append(want, "600", "610")
		for i := 1005; i <= 1205; i += 10 { // above the end
			want = append(want, fmt.Sprint(i))
		}
		require.Equal(t, strings.Join(want, " "), b.text("SELECT id FROM t ORDER BY id"))
	})
}

func TestLockedRowsPostgres(t *testing.T) {
	t.Parallel()
	fill := func(t *testing.T, o longjob.Options) *bed {
		b := setup(t, o)
		b.sql("CREATE TABLE t (id bigint PRIMARY KEY, kind text); INSERT INTO t SELECT i, 'drop' FROM generate_series(1, 100) i")
		return b
	}

	const goes = "CREATE FUNCTION goes(t) RETURNS bool LANGUAGE sql AS $$ SELECT $1.kind = 'drop' $$"

	t.Run("a condition may name what only a table has", func(t *testing.T) {
		t.Parallel()
		b := fill(t, longjob.Options{MaxUnits: 1})
		b.sql(goes)
		tx := b.begin("SELECT FROM t WHERE id IN (3, 50) FOR UPDATE")
		b.fn = b.deletes("goes(t) AND t.tableoid = 't'::regclass AND ctid IS NOT NULL", sqlscan.Options{Batch: 10})
		res, err := b.Enqueue(t.Context(), "Scan", nil)
		require.NoError(t, err)
		for b.text("SELECT id FROM t ORDER BY id") != "3 50" {
			_, more := b.slice()
			require.True(t, more, "it waits for them")
		}
		require.NoError(t, tx.Rollback(t.Context()))
		run := b.goOn(res.UUID)
		require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
	})

	t.Run("the condition of a review may, too", func(t *testing.T) {
		t.Parallel()
		b := fill(t, longjob.Options{})
		b.sql(goes)
		q := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "goes(t) AND t.tableoid = 't'::regclass"}
		b.completes(func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectLoop(ctx, r, "review", b.pool, q, sqlscan.Options{}, pgx.RowToMap, func(ctx context.Context, row map[string]any) error {
				_, err := b.pool.Exec(ctx, "UPDATE t SET kind = 'seen' WHERE id = $1", row["id"])
				return err
			})
		})
		require.Equal(t, "100", b.text("SELECT count(*) FROM t WHERE kind = 'seen'"))
	})

	t.Run("more than it remembers", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 5000)")
		tx := b.begin("SELECT FROM t WHERE id <= 3000 FOR UPDATE")
		n := 0
		b.watch.on("SKIP LOCKED", func() {
			if n++; n == 7 {
				require.Equal(t, "5000", b.text("SELECT count(*) FROM t"), "it has gone on with too many behind it")
				require.NoError(t, tx.Rollback(t.Context()))
			}
		})
		run := b.completes(b.deletes("", sqlscan.Options{Batch: 300}))
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
		require.EqualValues(t, 5000, run.Steps[0].Done)
	})

	t.Run("a table that somebody changes is waited for", func(t *testing.T) {
		t.Parallel()
		b := fill(t, longjob.Options{})
		tx := b.begin("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
		n := 0
		b.watch.on("FROM \"t\"", func() {
			if n++; n == 2 {
				require.NoError(t, tx.Rollback(t.Context()))
			}
		})
		b.completes(b.deletes("", sqlscan.Options{Batch: 10, LockTimeout: 10 * time.Millisecond}))
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
	})
}
