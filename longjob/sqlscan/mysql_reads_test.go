//go:build unix

package sqlscan_test

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// The number of reads per row is small, however many columns the key has.
func TestRowsAreReadAFewTimesMySQL(t *testing.T) {
	t.Parallel()
	const rows = 5000
	for name, create := range map[string]string{
		"one column":           "CREATE TABLE t (id bigint PRIMARY KEY, a int, name varchar(20) NOT NULL)",
		"two columns":          "CREATE TABLE t (id bigint, a int, name varchar(20) NOT NULL, PRIMARY KEY (a, id))",
		"text and an index":    "CREATE TABLE t (id varchar(20) COLLATE utf8mb4_unicode_ci, a int, name varchar(20) NOT NULL, PRIMARY KEY (a, id), KEY (name))",
		"times and no numbers": "CREATE TABLE t (id datetime(6), a uuid DEFAULT UUID(), name varchar(20) NOT NULL, PRIMARY KEY (id, a))",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMySQL(t, longjob.Options{})
			b.sql(create)
			switch {
			case strings.HasPrefix(name, "times"):
				b.sql("INSERT INTO t (id, name) SELECT '2026-01-01' + INTERVAL seq SECOND, 'x' FROM seq_1_to_" + strconv.Itoa(rows))
			default:
				b.sql("INSERT INTO t SELECT seq, seq DIV 100, 'x' FROM seq_1_to_" + strconv.Itoa(rows))
			}
			b.db.SetMaxOpenConns(1) // whose session counts
			read := func() (n int) {
				require.NoError(t, b.db.QueryRowContext(t.Context(), "SELECT SUM(VARIABLE_VALUE) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME IN "+
					"('HANDLER_READ_FIRST', 'HANDLER_READ_KEY', 'HANDLER_READ_LAST', 'HANDLER_READ_NEXT', 'HANDLER_READ_PREV', 'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT')").Scan(&n))
				return n
			}
			q := sqlscan.MySQLQuery{Table: "t", Where: "name = 'x'", Columns: []string{"name"}}
			o := patient(sqlscan.Options{Batch: 100, HoldFor: time.Hour})
			keep := o
			keep.KeepRows = true
			scan := func(rows *sql.Rows) (s string, err error) { return s, rows.Scan(&s) }
			before := read()
			b.completes(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDestroyMySQL(ctx, r, "see", b.db, q, keep, scan, func(context.Context, *sql.Tx, string) error { return nil })
			})
			seen := read()
			b.completes(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDeleteMySQL(ctx, r, "delete", b.db, q, o)
			})
			deleted := read()
			require.Equal(t, "0", b.text("SELECT COUNT(*) FROM t"))
			t.Logf("read of %d rows: %d, %d", rows, seen-before, deleted-seen)
			require.Less(t, seen-before, 10*rows)
			require.Less(t, deleted-seen, 10*rows)
		})
	}
}
