//go:build unix

package sqlscan_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/mysqltest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// SEQUENCE tables are MariaDB's.
const myHundred = "CREATE TABLE t (id bigint PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'f'); INSERT INTO t SELECT seq, CONCAT('f', seq) FROM seq_1_to_100; CREATE TABLE log (id bigint)"

// patient has limits that no test meets, however busy the machine is.
func patient(o sqlscan.Options) sqlscan.Options {
	o.StatementTimeout = time.Minute
	return o
}

func TestSessionsMySQL(t *testing.T) {
	t.Parallel()
	small := patient(sqlscan.Options{Batch: 10})

	t.Run("the server wants a key in each WHERE", func(t *testing.T) {
		t.Parallel()
		b := setupMySQLAt(t, maria, longjob.Options{}, "&sql_safe_updates=1")
		b.sql(myHundred)
		b.completes(b.deletes("name <> 'x'", patient(sqlscan.Options{})))
		require.Equal(t, "0", b.text("SELECT COUNT(*) FROM t"))
		var safe int
		require.NoError(t, b.db.QueryRowContext(t.Context(), "SELECT @@SESSION.sql_safe_updates").Scan(&safe))
		require.Equal(t, 1, safe)
	})

	t.Run("the connections are as they were", func(t *testing.T) {
		t.Parallel()
		b := setupMySQLAt(t, maria, longjob.Options{}, "&innodb_lock_wait_timeout=7&max_statement_time=77.5&time_zone=%27SYSTEM%27&idle_transaction_timeout=777")
		b.sql("CREATE TABLE t (id timestamp(3) PRIMARY KEY, n int)")
		b.sql("SET time_zone = '+00:00'; INSERT INTO t SELECT '2026-10-25 00:00:00' + INTERVAL seq MINUTE, seq FROM seq_1_to_150")
		b.db.SetMaxOpenConns(1)
		b.completes(b.deletes("n % 2 = 0", small))
		require.Equal(t, "75", b.text("SELECT COUNT(*) FROM t"))
		var text string
		require.NoError(t, b.db.QueryRowContext(t.Context(), "SELECT CONCAT_WS(' ', @@innodb_lock_wait_timeout, @@max_statement_time, @@time_zone, @@idle_transaction_timeout, @@tx_isolation, @@lock_wait_timeout = @@global.lock_wait_timeout)").Scan(&text))
		require.Equal(t, "7 77.500000 SYSTEM 777 REPEATABLE-READ 1", text)
	})
}

// All kinds of keys and tables. n is the number of a row.
var myShapes = []struct {
	name, create, fill string
	query              sqlscan.MySQLQuery
}{
	{name: "large numbers", create: "CREATE TABLE t (id bigint unsigned PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT 18446744073709551615 - seq, seq FROM seq_1_to_100"},
	{name: "bits, all of them", create: "CREATE TABLE t (id bit(64) PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT 18446744073709551615 - seq * 2, seq FROM seq_1_to_100"},
	{name: "text that differs in blanks and case", create: "CREATE TABLE t (id varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT CONCAT(ELT(1 + seq % 2, 'a', 'A'), REPEAT(' ', seq % 3), seq DIV 6, REPEAT(' ', seq DIV 50)), seq FROM seq_1_to_100"},
	{name: "negative numbers", create: "CREATE TABLE t (id bigint PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT CAST(-9223372036854775807 AS SIGNED) + CAST(seq AS SIGNED), seq FROM seq_1_to_100"},
	{name: "a uuid", create: "CREATE TABLE t (id uuid PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT UUID(), seq FROM seq_1_to_100"},
	{name: "a uuid as text", create: "CREATE TABLE t (id char(36) CHARACTER SET ascii PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT UUID(), seq FROM seq_1_to_100"},
	{name: "a uuid as bytes", create: "CREATE TABLE t (id binary(16) PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT UNHEX(MD5(seq)), seq FROM seq_1_to_100"},
	{name: "bytes with zeros", create: "CREATE TABLE t (id varbinary(20) PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT CONCAT(REPEAT(X'00', seq % 10), CHAR(200 + seq % 50), X'00', seq), seq FROM seq_1_to_100"},
	{name: "text in a collation that ignores case", create: "CREATE TABLE t (id varchar(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT CONCAT(ELT(1 + seq % 5, 'ä', 'Ö', 'ß', '😀', 'z '), '''\\\\', seq), seq FROM seq_1_to_100"},
	{name: "text in a collation of another language", create: "CREATE TABLE t (id varchar(50) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT CONCAT(ELT(1 + seq % 5, 'ä', 'ae', 'Öx', 'ß', 'z'), 'q', seq), seq FROM seq_1_to_100"},
	{name: "text of two bytes a character", create: "CREATE TABLE t (id varchar(50) CHARACTER SET ucs2 PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT CONCAT('日本', seq), seq FROM seq_1_to_100"},
	{name: "text in another character set than that of the connection", create: "CREATE TABLE t (id varchar(50) CHARACTER SET sjis PRIMARY KEY, n int)", fill: "INSERT INTO t SELECT CONCAT('ソ', seq), seq FROM seq_1_to_100"},
	{name: "times", create: "CREATE TABLE t (id datetime(6), d date, c time(3), n int, PRIMARY KEY (d, id, c))", fill: "INSERT INTO t SELECT '2024-01-01' + INTERVAL seq * 1000001 MICROSECOND, '2024-02-28' + INTERVAL seq % 4 DAY, SEC_TO_TIME(-seq / 7), seq FROM seq_1_to_100"},
	{name: "points in time", create: "CREATE TABLE t (id timestamp(6) PRIMARY KEY, n int)", fill: "SET time_zone = '+00:00'; INSERT INTO t SELECT '2026-10-25 00:00:00' + INTERVAL 2 * seq MINUTE, seq FROM seq_1_to_100; SET time_zone = DEFAULT"},
	{name: "an enumeration, bits, a set and a decimal", create: "CREATE TABLE t (e enum('z','a'), b bit(3), s set('q','p'), p decimal(30,10), y year, n int, PRIMARY KEY (e, b, s, y, p))", fill: "INSERT INTO t SELECT 1 + seq % 2, seq % 5, seq % 4, seq / 3, 2000 + seq % 9, seq FROM seq_1_to_100"},
	{name: "two columns, not in the order of the table", create: "CREATE TABLE t (b varchar(9), n int, a bigint, PRIMARY KEY (a, b))", fill: "INSERT INTO t SELECT CONCAT(CHAR(65 + seq % 20), ''), seq, seq % 7 FROM seq_1_to_100"},
	{name: "names that want quotes", create: "CREATE TABLE `or``d\"er.s` (`Select` bigint, `a.b` varchar(9), n int, PRIMARY KEY (`Select`, `a.b`))", fill: "INSERT INTO `or``d\"er.s` SELECT seq DIV 10, seq, seq FROM seq_1_to_100", query: sqlscan.MySQLQuery{Table: "or`d\"er.s"}},
	{name: "partitions", create: "CREATE TABLE t (part int, id bigint, n int, PRIMARY KEY (part, id)) PARTITION BY HASH (part) PARTITIONS 3", fill: "INSERT INTO t SELECT seq % 3, seq, seq FROM seq_1_to_100"},
	{name: "another unique index, downwards", create: "CREATE TABLE t (id bigint PRIMARY KEY, a int NOT NULL, B int NOT NULL, n int, UNIQUE (a DESC, B DESC))", fill: "INSERT INTO t SELECT seq, seq % 10, seq, seq FROM seq_1_to_100", query: sqlscan.MySQLQuery{Key: []string{"a", "B"}}},
}

func TestShapesMySQL(t *testing.T) {
	t.Parallel()
	for _, shape := range myShapes {
		for _, params := range []string{"", "&interpolateParams=true&parseTime=true&time_zone=%27%2B05:30%27&collation=utf8mb4_bin", "&sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES%27&autocommit=0&interpolateParams=true&tx_isolation=%27SERIALIZABLE%27"} {
			t.Run(shape.name+params, func(t *testing.T) {
				t.Parallel()
				b := setupMySQLAt(t, maria, longjob.Options{}, params)
				b.sql(shape.create)
				b.sql(shape.fill)
				q := shape.query
				if q.Table == "" {
					q.Table = "t"
				}
				q.Where, q.Args, q.Columns, q.Database = "n % 2 = ?", []any{1}, []string{"n"}, b.name
				seen := map[int32]int{}
				o := patient(sqlscan.Options{Batch: 7, Window: 30, HoldFor: time.Hour})
				keep := o
				keep.KeepRows = true
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ScanDestroyMySQL(ctx, r, "see", b.db, q, keep, func(rows *sql.Rows) (n int32, err error) { return n, rows.Scan(&n) }, func(_ context.Context, _ *sql.Tx, n int32) error {
						seen[n]++
						return nil
					})
				})
				require.Len(t, seen, 50)
				for n, times := range seen {
					require.Equal(t, 1, times, "row %d", n)
				}
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ScanDeleteMySQL(ctx, r, "delete", b.db, q, o)
				})
				table := "`" + strings.ReplaceAll(q.Table, "`", "``") + "`"
				require.Equal(t, "50 50", b.text("SELECT COUNT(*) FROM "+table+" UNION ALL SELECT COUNT(*) FROM "+table+" WHERE n % 2 = 0"))
			})
		}
	}
}

// Unsuitable tables are refused before anything is changed, and not tried again.
func TestRefusedMySQL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, create string
		query        sqlscan.MySQLQuery
		want         string
	}{
		{"no primary key", "CREATE TABLE t (id bigint)", sqlscan.MySQLQuery{}, "`t` has no primary key"},
		{"no such index", "CREATE TABLE t (id bigint PRIMARY KEY, a int NOT NULL)", sqlscan.MySQLQuery{Key: []string{"a"}}, `no unique index of just the columns ["a"]`},
		{"NULL is allowed", "CREATE TABLE t (a int UNIQUE)", sqlscan.MySQLQuery{Key: []string{"a"}}, "column `a` may be NULL"},
		{"the beginning of a column", "CREATE TABLE t (a text NOT NULL, PRIMARY KEY (a(5)))", sqlscan.MySQLQuery{}, "the beginning of column `a` only"},
		{"two directions", "CREATE TABLE t (a int NOT NULL, b int NOT NULL, UNIQUE (a, b DESC))", sqlscan.MySQLQuery{Key: []string{"a", "b"}}, "differ in their direction"},
		{"a number that is not exact", "CREATE TABLE t (a float PRIMARY KEY)", sqlscan.MySQLQuery{}, "column `a` is of type float"},
		{"a hash", "CREATE TABLE t (a text NOT NULL, UNIQUE (a) USING HASH)", sqlscan.MySQLQuery{Key: []string{"a"}}, "it is one of type HASH"},
		{"an index that the planner ignores", "CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, UNIQUE (a) IGNORED)", sqlscan.MySQLQuery{Key: []string{"a"}}, "no unique index"},
		{"an engine without transactions", "CREATE TABLE t (id int PRIMARY KEY) ENGINE=Aria", sqlscan.MySQLQuery{}, "`t` is a table of Aria"},
		{"a view", "CREATE VIEW t AS SELECT 1 AS id", sqlscan.MySQLQuery{}, "`t` is a view"},
		{"no such table", "CREATE TABLE u (id int)", sqlscan.MySQLQuery{}, "`t` does not exist"},
		{"no table", "CREATE TABLE u (id int)", sqlscan.MySQLQuery{Key: []string{"a"}, Columns: []string{"none"}}, "no table"},
		{"no date", "CREATE TABLE t (id date PRIMARY KEY); SET sql_mode = ''; INSERT INTO t VALUES ('2026-01-00'); SET sql_mode = DEFAULT", sqlscan.MySQLQuery{}, `"2026-01-00", which is not a date`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setupMySQL(t, longjob.Options{})
			b.sql(c.create)
			if c.query.Columns == nil {
				c.query.Table = "t"
			}
			run := b.run(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDeleteMySQL(ctx, r, "delete", b.db, c.query, patient(sqlscan.Options{}))
			})
			require.Equal(t, longjob.StatusFailed, run.Status, run.Error)
			require.Contains(t, run.Error, c.want)
			require.Contains(t, run.Error, `sqlscan: step "delete"`)
			require.Equal(t, 1, run.Failures)
		})
	}
}

func TestOneConnectionIsEnoughMySQL(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, longjob.Options{})
	b.sql(myHundred)
	b.db.SetMaxOpenConns(1)
	b.completes(b.reviews("name <> 'done'", patient(sqlscan.Options{}), func(ctx context.Context, f file) error {
		_, err := b.db.ExecContext(ctx, "UPDATE t SET name = 'done' WHERE id = ?", f.ID)
		return err
	}))
}

func TestFaultsMySQL(t *testing.T) {
	t.Parallel()
	t.Run("the server crashes", func(t *testing.T) {
		t.Parallel()
		own := mysqltest.Start(t, mysqltest.Options{Durable: true})
		b := setupMySQLAt(t, own, longjob.Options{}, "")
		b.sql(myHundred)
		b.watch.on("DELETE", nth(3, func() { require.NoError(t, own.Restart(context.WithoutCancel(t.Context()))) }))
		b.completes(b.destroys("", patient(sqlscan.Options{Batch: 10}), func(ctx context.Context, _ *longjob.Runner, tx *sql.Tx, f file) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO log VALUES (?)", f.ID)
			return err
		}))
		require.Equal(t, "0", b.text("SELECT COUNT(*) FROM t"))
		require.Equal(t, "100 100", b.text("SELECT CONCAT_WS(' ', COUNT(*), COUNT(DISTINCT id)) FROM log"))
	})

	t.Run("a deadlock is tried again", func(t *testing.T) {
		t.Parallel()
		b := setupMySQL(t, longjob.Options{})
		b.sql(myHundred)
		b.sql("CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1)")
		calls := 0
		var other *sql.Tx
		done := make(chan error, 1)
		b.completes(b.destroys("", patient(sqlscan.Options{Batch: 50, LockTimeout: time.Minute}), func(ctx context.Context, _ *longjob.Runner, tx *sql.Tx, f file) error {
			if calls++; calls == 1 { // the other has u and wants t, this one has t and wants u
				other = b.begin()
				b.in(other, "SELECT * FROM u FOR UPDATE")
				b.in(other, "INSERT INTO u SELECT seq FROM seq_2_to_1000") // makes this one the victim
				go func() {
					_, err := other.ExecContext(context.WithoutCancel(ctx), "SELECT * FROM t WHERE id = 1 FOR UPDATE")
					done <- errors.Join(err, other.Commit())
				}()
				_, err := tx.ExecContext(ctx, "SELECT * FROM u WHERE id = 1 FOR UPDATE")
				require.ErrorContains(t, err, "1213")
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO log VALUES (?)", f.ID)
			return err
		}))
		require.NoError(t, <-done)
		require.Equal(t, "100 100", b.text("SELECT CONCAT_WS(' ', COUNT(*), COUNT(DISTINCT id)) FROM log"))
	})

	t.Run("a statement that takes too long has less to do", func(t *testing.T) {
		t.Parallel()
		b := setupMySQL(t, longjob.Options{})
		b.sql(myHundred)
		// A statement of more than 30 rows takes longer than any machine has. NOW is the time at which
		// the statement began. The server ends a query in a trigger, but no call of SLEEP.
		b.sql(`CREATE TRIGGER slow BEFORE DELETE ON t FOR EACH ROW BEGIN
			IF @began IS NULL OR @began <> NOW(6) THEN SET @began = NOW(6), @rows = 0; END IF;
			SET @rows = @rows + 1;
			IF @rows > 30 THEN SET @seen = (SELECT COUNT(*) FROM seq_1_to_1000000000000 WHERE seq % 1000 = OLD.id); END IF;
		END`)
		run := b.completes(b.deletes("", sqlscan.Options{Batch: 100, StatementTimeout: 250 * time.Millisecond}))
		require.Equal(t, "0", b.text("SELECT COUNT(*) FROM t"))
		require.GreaterOrEqual(t, run.Units, int64(4))
		require.EqualValues(t, 100, run.Steps[0].Done)
	})

	t.Run("a server that is not there", func(t *testing.T) {
		t.Parallel()
		b := setupMySQL(t, longjob.Options{Slice: time.Second, Retries: -1})
		b.db = b.open("root@unix("+t.TempDir()+"/s)/x?timeout=1s", b.watch)
		run := b.run(b.deletes("", sqlscan.Options{}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "no such file")
		require.Equal(t, 1, run.Slices)
	})
}

func TestSubjectsMySQL(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, longjob.Options{})
	b.sql("CREATE TABLE shops (id bigint, name text, closed boolean); INSERT INTO shops VALUES (3, 'c', false), (1, 'a', false), (2, 'b', true), (NULL, 'n', false)")
	got, err := sqlscan.SubjectsMySQL(b.db, "SELECT id, name FROM shops WHERE closed = ? ORDER BY name -- all", false)(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"1", "3"}, got)
	_, err = sqlscan.SubjectsMySQL(b.db, "SELECT nothing FROM shops")(t.Context())
	require.ErrorContains(t, err, "nothing")
}
