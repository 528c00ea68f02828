//go:build unix

package sqlscan_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// Computed columns may be in the condition, among the read columns, and in the key if they
// cannot be NULL.
func TestGeneratedColumns(t *testing.T) {
	t.Parallel()
	small := patient(sqlscan.Options{Batch: 10, HoldFor: time.Hour})

	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		const table = `CREATE TABLE t (id bigint PRIMARY KEY, name text NOT NULL, done boolean NOT NULL DEFAULT false,
			code text NOT NULL GENERATED ALWAYS AS ('c' || lpad((1000 - id)::text, 4, '0')) STORED UNIQUE, odd boolean GENERATED ALWAYS AS (id % 2 = 1) STORED,
			waits boolean GENERATED ALWAYS AS (NOT done) STORED);
			INSERT INTO t (id, name) SELECT i, 'f' || i FROM generate_series(1, 100) i; CREATE TABLE log (id bigint)`
		for what, q := range map[string]sqlscan.Query{
			"condition": {Where: "odd"}, "key": {Key: []string{"code"}, Where: "odd AND t.code > 'c'"}, "primary key": {Where: "odd"},
		} {
			prepare := func(t *testing.T) (*bed, sqlscan.Query) {
				t.Helper()
				b := setup(t, longjob.Options{MaxUnits: 3})
				b.sql(table)
				if what == "primary key" {
					b.sql("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code, id)")
				}
				q := q
				q.Table = pgx.Identifier{"t"}
				return b, q
			}
			t.Run("ScanDelete "+what, func(t *testing.T) {
				t.Parallel()
				b, q := prepare(t)
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ScanDelete(ctx, r, "s", b.pool, q, small)
				})
				require.Equal(t, "50 0", b.text("SELECT concat_ws(' ', count(*), count(*) FILTER (WHERE odd)) FROM t"))
			})
			t.Run("ScanDestroy "+what, func(t *testing.T) {
				t.Parallel()
				b, q := prepare(t)
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ScanDestroy(ctx, r, "s", b.pool, q, small, pgx.RowToMap, func(ctx context.Context, tx pgx.Tx, row map[string]any) error {
						if want := fmt.Sprintf("c%04d", 1000-row["id"].(int64)); row["code"] != want {
							return fmt.Errorf("%v", row)
						}
						_, err := tx.Exec(ctx, "INSERT INTO log VALUES ($1)", row["id"])
						return err
					})
				})
				require.Equal(t, "50 0", b.text("SELECT concat_ws(' ', count(*), count(*) FILTER (WHERE odd)) FROM t"))
				require.Equal(t, "50 50", b.text("SELECT concat_ws(' ', count(*), count(DISTINCT id)) FROM log"))
			})
			t.Run("ReviewingSelectLoop "+what, func(t *testing.T) {
				t.Parallel()
				b, q := prepare(t)
				q.Where += " AND waits"
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ReviewingSelectLoop(ctx, r, "s", b.pool, q, small, pgx.RowToMap, func(ctx context.Context, row map[string]any) error {
						tx, err := sqlscan.Tx(ctx)
						if err != nil {
							return err
						}
						_, err = tx.Exec(ctx, "UPDATE t SET done = true WHERE id = $1", row["id"])
						return err
					})
				})
				require.Equal(t, "50 50", b.text("SELECT concat_ws(' ', count(*), count(*) FILTER (WHERE odd)) FROM t WHERE done"))
			})
		}
		t.Run("one that may be NULL is not a key", func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{})
			b.sql("CREATE TABLE t (id bigint PRIMARY KEY, g bigint GENERATED ALWAYS AS (id * 2) STORED UNIQUE)")
			run := b.run(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDelete(ctx, r, "s", b.pool, sqlscan.Query{Table: pgx.Identifier{"t"}, Key: []string{"g"}}, small)
			})
			require.Equal(t, longjob.StatusFailed, run.Status)
			require.Equal(t, 1, run.Slices)
			require.Contains(t, run.Error, `may be NULL: ALTER TABLE "t" ALTER "g" SET NOT NULL`)
		})
	})

	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		for _, how := range []string{"VIRTUAL", "PERSISTENT"} {
			table := `CREATE TABLE t (id bigint PRIMARY KEY, name varchar(20) NOT NULL, done boolean NOT NULL DEFAULT false,
				code varchar(10) AS (CONCAT('c', LPAD(1000 - id, 4, '0'))) HOW, odd boolean AS (id % 2 = 1) HOW, waits boolean AS (NOT done) HOW, UNIQUE (code), INDEX (odd, waits));
				INSERT INTO t (id, name) SELECT seq, CONCAT('f', seq) FROM seq_1_to_100; CREATE TABLE log (id bigint)`
			q := sqlscan.MySQLQuery{Table: "t", Where: "odd AND t.code > 'c'"}
			prepare := func(t *testing.T) *myBed {
				t.Helper()
				b := setupMySQL(t, longjob.Options{MaxUnits: 3})
				b.sql(strings.ReplaceAll(table, "HOW", how))
				return b
			}
			type row struct {
				id   int64
				code string
			}
			read := func(rows *sql.Rows) (r row, err error) { return r, rows.Scan(&r.id, &r.code) }
			t.Run("ScanDelete "+how, func(t *testing.T) {
				t.Parallel()
				b := prepare(t)
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ScanDeleteMySQL(ctx, r, "s", b.db, q, small)
				})
				require.Equal(t, "50 0", b.text("SELECT CONCAT_WS(' ', COUNT(*), SUM(odd)) FROM t"))
			})
			t.Run("ScanDestroy "+how, func(t *testing.T) {
				t.Parallel()
				b := prepare(t)
				q := q
				q.Columns = []string{"id", "code"}
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ScanDestroyMySQL(ctx, r, "s", b.db, q, small, read, func(ctx context.Context, tx *sql.Tx, row row) error {
						if want := fmt.Sprintf("c%04d", 1000-row.id); row.code != want {
							return fmt.Errorf("%v", row)
						}
						_, err := tx.ExecContext(ctx, "INSERT INTO log VALUES (?)", row.id)
						return err
					})
				})
				require.Equal(t, "50 0", b.text("SELECT CONCAT_WS(' ', COUNT(*), SUM(odd)) FROM t"))
				require.Equal(t, "50 50", b.text("SELECT CONCAT_WS(' ', COUNT(*), COUNT(DISTINCT id)) FROM log"))
			})
			t.Run("ReviewingSelectLoop "+how, func(t *testing.T) {
				t.Parallel()
				b := prepare(t)
				q := q
				q.Where, q.Columns = "odd AND waits", []string{"id", "code"}
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ReviewingSelectLoopMySQL(ctx, r, "s", b.db, q, small, read, func(ctx context.Context, row row) error {
						tx, err := sqlscan.TxMySQL(ctx)
						if err != nil {
							return err
						}
						_, err = tx.ExecContext(ctx, "UPDATE t SET done = true WHERE id = ?", row.id)
						return err
					})
				})
				require.Equal(t, "50 50", b.text("SELECT CONCAT_WS(' ', COUNT(*), SUM(odd)) FROM t WHERE done"))
			})
			t.Run("as a key "+how, func(t *testing.T) {
				t.Parallel()
				b := prepare(t)
				run := b.run(func(ctx context.Context, r *longjob.Runner) error {
					q := q
					q.Key = []string{"code"}
					return sqlscan.ScanDeleteMySQL(ctx, r, "s", b.db, q, small)
				})
				require.Equal(t, longjob.StatusFailed, run.Status)
				require.Equal(t, 1, run.Slices)
				require.Contains(t, run.Error, "column `code` may be NULL, as any that MariaDB generates")
				require.Contains(t, run.Error, "leave Key empty")
				require.Equal(t, "100", b.text("SELECT COUNT(*) FROM t"))
			})
		}
	})
}
