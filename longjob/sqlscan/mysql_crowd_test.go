//go:build unix

package sqlscan_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// crowd changes rows of table t at random until stop is called, like PostgreSQL's. It leaves
// rows alone whose id is divisible by four.
func (b *myBed) crowd() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for ctx.Err() == nil {
				id := int64(random.IntN(4000))
				id += (4 - id%4) % 4
				id += 1 + int64(random.IntN(3))
				tx, err := b.other.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
				if err != nil {
					continue
				}
				for n := range int64(5) {
					statement := []string{
						"INSERT IGNORE INTO t VALUES (?, 'drop')",
						"DELETE FROM t WHERE id = ?",
						"UPDATE t SET kind = 'keep' WHERE id = ?",
						"UPDATE t SET kind = 'drop' WHERE id = ?",
						"UPDATE t SET kind = kind WHERE id = ?", // which locks it
					}[random.IntN(5)]
					if _, err = tx.ExecContext(ctx, statement, id+4*n); err != nil {
						break
					}
				}
				if err != nil {
					_ = tx.Rollback()
					continue
				}
				_, _ = tx.ExecContext(ctx, "DO SLEEP(0.002)")
				_ = tx.Commit()
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

const myCrowded = `CREATE TABLE t (id bigint PRIMARY KEY, kind varchar(9) NOT NULL);
	INSERT INTO t SELECT seq, IF(seq % 8 = 0, 'keep', 'drop') FROM seq_1_to_4000;
	CREATE TABLE gone (id bigint, kind varchar(9));
	CREATE TRIGGER note AFTER DELETE ON t FOR EACH ROW INSERT INTO gone VALUES (OLD.id, OLD.kind)`

func TestAmongOthersMySQL(t *testing.T) {
	t.Parallel()

	t.Run("nothing goes that does not match", func(t *testing.T) {
		t.Parallel()
		b := setupMySQL(t, longjob.Options{MaxUnits: 20})
		b.sql(myCrowded)
		stop := b.crowd()
		b.completes(b.deletes("kind = 'drop'", patient(sqlscan.Options{Batch: 20, Window: 100})))
		stop()
		require.Equal(t, "500", b.text("SELECT COUNT(*) FROM t WHERE id % 8 = 0"))
		require.Equal(t, "0", b.text("SELECT COUNT(*) FROM t WHERE id % 8 = 4"), "what nobody else has touched is gone")
		require.Equal(t, "500 500", b.text("SELECT CONCAT_WS(' ', COUNT(*), COUNT(DISTINCT id)) FROM gone WHERE id % 4 = 0"))
	})

	t.Run("each row is visited once", func(t *testing.T) {
		t.Parallel()
		b := setupMySQL(t, longjob.Options{MaxUnits: 20})
		b.sql(myCrowded)
		stop := b.crowd()
		seen := map[int64]int{}
		b.completes(func(ctx context.Context, r *longjob.Runner) error {
			q := sqlscan.MySQLQuery{Table: "t", Where: "kind = 'drop'"}
			return sqlscan.ScanDestroyMySQL(ctx, r, "see", b.db, q, patient(sqlscan.Options{Batch: 20, KeepRows: true}), scanFile, func(_ context.Context, _ *sql.Tx, f file) error {
				seen[f.ID]++
				if f.Name != "drop" {
					t.Errorf("row %d is %s", f.ID, f.Name)
				}
				return nil
			})
		})
		stop()
		for id := int64(4); id <= 4000; id += 4 {
			want := 1
			if id%8 == 0 {
				want = 0
			}
			require.Equal(t, want, seen[id], "row %d", id)
		}
		for id, n := range seen {
			require.Equal(t, 1, n, "row %d", id)
		}
	})
}

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
