//go:build unix

package sqlscan_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// The number of reads per row is small for any size of the table and however little the
// planner knows about it.
func TestRowsAreReadAFewTimes(t *testing.T) {
	t.Parallel()
	const rows = 5000
	for name, create := range map[string]string{
		"one column":    "CREATE TABLE t (id bigint PRIMARY KEY, a int, name text NOT NULL)",
		"two columns":   "CREATE TABLE t (id bigint, a int, name text NOT NULL, PRIMARY KEY (a, id))",
		"a wrong index": "CREATE TABLE t (id bigint PRIMARY KEY, a int, name text NOT NULL); CREATE INDEX ON t (name); INSERT INTO t SELECT -i, 0, 'y' FROM generate_series(1, 1000) i; ANALYZE t",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{})
			b.sql(create)
			b.sql("ALTER TABLE t SET (autovacuum_enabled = off)")
			b.sql("INSERT INTO t SELECT i, i / 100, 'x' FROM generate_series(1, $1::int) i", rows)
			q := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "name = 'x'", Columns: []string{"id", "name"}}
			o := sqlscan.Options{Batch: 100, HoldFor: time.Hour, StatementTimeout: time.Minute}
			keep := o
			keep.KeepRows = true
			read := func() int {
				n, err := strconv.Atoi(b.text("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 't' AND schemaname = current_schema()"))
				require.NoError(t, err)
				return n
			}
			// A connection reports its counts at the latest when it ends.
			counted := func() int {
				b.pool.Reset()
				b.other.Reset()
				who := b.pool.Config().ConnConfig.RuntimeParams["application_name"]
				proctest.Await(t, time.Minute, func() bool {
					return b.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", who) == "0"
				}, "connections that end")
				return read()
			}
			before := counted()
			b.completes(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDestroy(ctx, r, "see", b.pool, q, keep, pgx.RowToStructByName[file], func(context.Context, pgx.Tx, file) error { return nil })
			})
			seen := counted()
			b.completes(func(ctx context.Context, r *longjob.Runner) error {
				one := q
				one.Where += " AND id % 2 = 0"
				return sqlscan.ReviewingSelectLoop(ctx, r, "review", b.pool, one, o, pgx.RowToStructByName[file], func(ctx context.Context, f file) error {
					_, err := b.other.Exec(ctx, "UPDATE t SET name = 'z' WHERE a = $1 AND id = $2", f.ID/100, f.ID)
					return err
				})
			})
			reviewed := counted()
			b.completes(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDelete(ctx, r, "delete", b.pool, q, o)
			})
			deleted := counted()
			require.Equal(t, "0", b.text("SELECT count(*) FROM t WHERE name = 'x'"))
			t.Logf("read of %d rows: %d, %d, %d", rows, seen-before, reviewed-seen, deleted-reviewed)
			require.Less(t, seen-before, 10*rows)
			require.Less(t, reviewed-seen, 10*rows)
			require.Less(t, deleted-reviewed, 10*rows)
		})
	}
}
