//go:build unix

package sqlscan_test

import (
	"context"
	"database/sql"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/mysqltest"
	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// benchRows is how many rows the table of a benchmark has, every other one of which matches. The
// figures in README.md come from
//
//	RESQUED_BENCH_ROWS=400000 go test ./longjob/sqlscan -run '^$' -bench . -benchtime 1x -timeout 1h
func benchRows(b *testing.B) int {
	n, err := strconv.Atoi(os.Getenv("RESQUED_BENCH_ROWS"))
	if err != nil {
		n = 100_000
	}
	b.Logf("%d rows", n)
	return n
}

// measured is one way of deleting the matching rows.
type measured struct {
	name string
	// rows limits the rows of the table, for slow ways.
	rows int
	fn   func(ctx context.Context) error                    // either the server alone,
	scan func(ctx context.Context, r *longjob.Runner) error // or a long job
}

func measure(b *testing.B, bed *bed, rows int, fill func(rows int), left func() string, all []measured) {
	for _, m := range all {
		b.Run(m.name, func(b *testing.B) {
			n := rows
			if m.rows > 0 {
				n = min(n, m.rows)
			}
			for b.Loop() {
				b.StopTimer()
				fill(n)
				bed.watch.mu.Lock()
				bed.watch.longest, bed.watch.slowest = 0, ""
				bed.watch.mu.Unlock()
				b.StartTimer()
				began := time.Now()
				if m.fn != nil {
					require.NoError(b, m.fn(b.Context()))
				} else {
					bed.completes(m.scan)
				}
				took := time.Since(began)
				b.StopTimer()
				require.Equal(b, "0", left())
				b.ReportMetric(float64(n/2)/took.Seconds(), "rows/s")
				if m.scan != nil {
					b.ReportMetric(float64(bed.watch.longest.Milliseconds()), "longest-ms")
				}
				b.StartTimer()
			}
		})
	}
}

func BenchmarkPostgres(b *testing.B) {
	own := pgtest.Start(b, pgtest.Options{Durable: true, Settings: []string{"max_wal_size=4GB", "autovacuum=off"}})
	t := setupAt(b, own, longjob.Options{Slice: 15 * time.Second}, "")
	t.sql(`CREATE PROCEDURE in_the_server() LANGUAGE plpgsql AS $$ DECLARE last bigint := 0; high bigint; BEGIN LOOP
		SELECT max(id) INTO high FROM (SELECT id FROM t WHERE id > last AND kind = 'drop' ORDER BY id LIMIT 1000) one;
		EXIT WHEN high IS NULL;
		DELETE FROM t WHERE id > last AND id <= high AND kind = 'drop';
		last := high; COMMIT; END LOOP; END $$`)
	q := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "kind = $1", Args: []any{"drop"}, Columns: []string{"id", "name"}}
	exec := func(statement string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := t.other.Exec(ctx, statement)
			return err
		}
	}
	measure(b, t, benchRows(b), func(rows int) {
		t.sql("DROP TABLE IF EXISTS t")
		t.sql("CREATE TABLE t (id bigint PRIMARY KEY, kind text NOT NULL, name text NOT NULL)")
		t.sql("INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN 'keep' ELSE 'drop' END, repeat('x', 100) FROM generate_series(1, $1::int) i", rows)
		t.sql("ANALYZE t")
		t.sql("CHECKPOINT")
	}, func() string { return t.text("SELECT count(*) FROM t WHERE kind = 'drop'") }, []measured{
		{name: "one DELETE", fn: exec("DELETE FROM t WHERE kind = 'drop'")},
		{name: "a loop in the server", fn: exec("CALL in_the_server()")},
		{name: "ScanDelete", scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ScanDelete(ctx, r, "delete", t.pool, q, sqlscan.Options{})
		}},
		{name: "ScanDestroy", scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ScanDestroy(ctx, r, "destroy", t.pool, q, sqlscan.Options{}, pgx.RowToStructByName[file], func(context.Context, pgx.Tx, file) error { return nil })
		}},
		{name: "ReviewingSelectLoop", scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectLoop(ctx, r, "review", t.pool, q, sqlscan.Options{}, pgx.RowToStructByName[file], func(ctx context.Context, f file) error {
				tx, err := sqlscan.Tx(ctx)
				if err != nil {
					return err
				}
				_, err = tx.Exec(ctx, "UPDATE t SET kind = 'done' WHERE id = $1", f.ID)
				return err
			})
		}},
		{name: "ReviewingSelectLoop, a commit for each row", rows: 40_000, scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectLoop(ctx, r, "review", t.pool, q, sqlscan.Options{}, pgx.RowToStructByName[file], func(ctx context.Context, f file) error {
				_, err := t.other.Exec(ctx, "UPDATE t SET kind = 'done' WHERE id = $1", f.ID)
				return err
			})
		}},
		{name: "ReviewingSelectLoop, a commit for each row, 4 at a time", rows: 40_000, scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectLoop(ctx, r, "review", t.pool, q, sqlscan.Options{Parallel: 4}, pgx.RowToStructByName[file], func(ctx context.Context, f file) error {
				_, err := t.other.Exec(ctx, "UPDATE t SET kind = 'done' WHERE id = $1", f.ID)
				return err
			})
		}},
		{name: "ReviewingSelectBatches", scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectBatches(ctx, r, "review", t.pool, q, sqlscan.Options{}, pgx.RowToStructByName[file], func(ctx context.Context, files []file) error {
				_, err := t.other.Exec(ctx, "UPDATE t SET kind = 'done' WHERE id = ANY($1)", ids(files))
				return err
			})
		}},
	})
}

func BenchmarkMySQL(b *testing.B) {
	own := mysqltest.Start(b, mysqltest.Options{Durable: true, Settings: []string{"innodb_buffer_pool_size=1G", "innodb_log_file_size=1G"}})
	t := setupMySQLAt(b, own, longjob.Options{Slice: 15 * time.Second}, "&interpolateParams=true")
	other := t.open(own.DSN(t.name)+"?interpolateParams=true", nil)
	t.sql(`CREATE PROCEDURE in_the_server() BEGIN DECLARE last, high bigint DEFAULT 0; again: LOOP
		SELECT MAX(id) INTO high FROM (SELECT id FROM t WHERE id > last AND kind = 'drop' ORDER BY id LIMIT 1000) one;
		IF high IS NULL THEN LEAVE again; END IF;
		DELETE FROM t WHERE id > last AND id <= high AND kind = 'drop';
		SET last = high; COMMIT; END LOOP; END`)
	q := sqlscan.MySQLQuery{Table: "t", Where: "kind = ?", Args: []any{"drop"}, Columns: []string{"id", "name"}}
	exec := func(statement string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := t.other.ExecContext(ctx, statement)
			return err
		}
	}
	measure(b, t.bed, benchRows(b), func(rows int) {
		t.sql("DROP TABLE IF EXISTS t")
		t.sql("CREATE TABLE t (id bigint PRIMARY KEY, kind varchar(10) NOT NULL, name varchar(200) NOT NULL)")
		t.sql("INSERT INTO t SELECT seq, IF(seq % 2 = 0, 'keep', 'drop'), REPEAT('x', 100) FROM seq_1_to_" + strconv.Itoa(rows))
		t.sql("ANALYZE TABLE t")
	}, func() string { return strings.TrimSpace(t.text("SELECT COUNT(*) FROM t WHERE kind = 'drop'")) }, []measured{
		{name: "one DELETE", fn: exec("DELETE FROM t WHERE kind = 'drop'")},
		{name: "a loop in the server", fn: exec("CALL in_the_server()")},
		{name: "ScanDelete", scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ScanDeleteMySQL(ctx, r, "delete", t.db, q, sqlscan.Options{})
		}},
		{name: "ScanDestroy", scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ScanDestroyMySQL(ctx, r, "destroy", t.db, q, sqlscan.Options{}, scanFile, func(context.Context, *sql.Tx, file) error { return nil })
		}},
		{name: "ReviewingSelectLoop", scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectLoopMySQL(ctx, r, "review", t.db, q, sqlscan.Options{}, scanFile, func(ctx context.Context, f file) error {
				tx, err := sqlscan.TxMySQL(ctx)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, "UPDATE t SET kind = 'done' WHERE id = ?", f.ID)
				return err
			})
		}},
		{name: "ReviewingSelectLoop, a commit for each row", rows: 40_000, scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectLoopMySQL(ctx, r, "review", t.db, q, sqlscan.Options{}, scanFile, func(ctx context.Context, f file) error {
				_, err := other.ExecContext(ctx, "UPDATE t SET kind = 'done' WHERE id = ?", f.ID)
				return err
			})
		}},
		{name: "ReviewingSelectLoop, a commit for each row, 4 at a time", rows: 40_000, scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectLoopMySQL(ctx, r, "review", t.db, q, sqlscan.Options{Parallel: 4}, scanFile, func(ctx context.Context, f file) error {
				_, err := other.ExecContext(ctx, "UPDATE t SET kind = 'done' WHERE id = ?", f.ID)
				return err
			})
		}},
		{name: "ReviewingSelectBatches", scan: func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectBatchesMySQL(ctx, r, "review", t.db, q, sqlscan.Options{}, scanFile, func(ctx context.Context, files []file) error {
				_, err := other.ExecContext(ctx, "UPDATE t SET kind = 'done' WHERE id IN (?"+strings.Repeat(", ?", len(files)-1)+")", anys(ids(files))...)
				return err
			})
		}},
	})
}

func ids(files []file) []int64 {
	all := make([]int64, len(files))
	for i, f := range files {
		all[i] = f.ID
	}
	return all
}

func anys[T any](values []T) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}
