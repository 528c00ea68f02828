package system_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/mysqltest"
	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/system/harness"
)

// database starts a PostgreSQL with a table of events, every tenth of which is to be kept.
func database(t *testing.T, rows int) (pool *pgxpool.Pool, url string) {
	t.Helper()
	server := pgtest.Start(t, pgtest.Options{})
	pool, err := pgxpool.New(t.Context(), server.URL(""))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, statement := range []string{
		"CREATE TABLE events (id bigint PRIMARY KEY, kind text NOT NULL, body text NOT NULL)",
		"CREATE TABLE archive (id bigint)",
	} {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	_, err = pool.Exec(t.Context(), "INSERT INTO events SELECT i, CASE WHEN i % 10 = 0 THEN 'keep' ELSE 'drop' END, repeat('x', 100) FROM generate_series(1, $1::int) i", rows)
	require.NoError(t, err)
	return pool, server.URL("")
}

// databases are those with a table of events; each returns one with some rows, and how the program
// is told of it.
var databases = map[string]func(t *testing.T, rows int) (db *sql.DB, url string){
	"PostgreSQL": func(t *testing.T, rows int) (*sql.DB, string) {
		pool, url := database(t, rows)
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		return db, url
	},
	"MariaDB": func(t *testing.T, rows int) (*sql.DB, string) {
		server := mysqltest.Start(t, mysqltest.Options{})
		db, err := sql.Open("mysql", server.DSN(""))
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		for _, statement := range []string{
			"CREATE TABLE events (id bigint PRIMARY KEY, kind varchar(10) NOT NULL, body varchar(100) NOT NULL)",
			"CREATE TABLE archive (id bigint)",
			fmt.Sprintf("INSERT INTO events SELECT seq, IF(seq %% 10 = 0, 'keep', 'drop'), REPEAT('x', 100) FROM seq_1_to_%d", rows),
		} {
			_, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		return db, "mysql:" + server.DSN("")
	},
}

// TestRowsAreDeletedWhateverIsKilled deletes rows by a daemon whose worker processes are
// killed, while other sessions lock and insert rows.
func TestRowsAreDeletedWhateverIsKilled(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		for _, class := range []string{"Delete", "Destroy"} {
			t.Run(name+" "+class, func(t *testing.T) {
				t.Parallel()
				deleteRows(t, class, open)
			})
		}
	}
}

func deleteRows(t *testing.T, class string, open func(t *testing.T, rows int) (*sql.DB, string)) {
	t.Helper()
	rows, kills := 100_000, 4
	if harness.Full() {
		rows, kills = 1_000_000*10/9, 8
	}
	if class == "Destroy" {
		rows /= 10
	}
	db, url := open(t, rows)
	d := harness.Start(t, harness.Options{App: true, Workers: 2, Env: []string{"RESQUED_TEST_ROWS=" + url}})
	c := longClient(t, d)
	lock, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	defer func() { _ = lock.Rollback() }()
	for _, id := range []int{1, rows/2 + 1} {
		var found int
		require.NoError(t, lock.QueryRowContext(t.Context(), fmt.Sprintf("SELECT id FROM events WHERE id = %d FOR UPDATE", id)).Scan(&found))
	}

	began := time.Now()
	res, err := c.Enqueue(t.Context(), class, "drop", longjob.Queue("rows"))
	require.NoError(t, err)
	done := func() int64 {
		run, err := c.Get(t.Context(), res.UUID)
		require.NoError(t, err)
		if len(run.Steps) > 0 {
			return run.Steps[0].Done
		}
		return 0
	}
	for i := range kills {
		proctest.Await(t, 2*time.Minute, func() bool { return done() > int64(rows*8/10*(i+1)/(kills+1)) }, "progress")
		if i == 0 {
			for n := range 1000 {
				_, err := db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO events VALUES (%d, 'drop', 'late')", rows+1+n))
				require.NoError(t, err)
			}
		}
		for _, pid := range d.WorkerPIDs() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	require.NoError(t, lock.Rollback())
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	last, err := c.Wait(limit, res.UUID)
	require.NoError(t, err)
	took := time.Since(began)
	require.Equal(t, longjob.StatusCompleted, last.Status, last.Error)
	require.Empty(t, d.Failures())

	count := func(query string, args ...any) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), fmt.Sprintf(query, args...)).Scan(&n))
		return n
	}
	require.Zero(t, count("SELECT count(*) FROM events WHERE kind = 'drop' AND id <= %d", rows))
	require.Equal(t, rows/10, count("SELECT count(*) FROM events WHERE kind = 'keep'"))
	require.Equal(t, 1000, count("SELECT count(*) FROM events WHERE id > %d", rows), "those that were added meanwhile, above the others, stay")
	if class == "Destroy" {
		require.Equal(t, rows-rows/10, count("SELECT count(*) FROM archive"))
		require.Zero(t, count("SELECT count(*) - count(DISTINCT id) FROM archive"))
	}
	t.Logf("%d rows gone in %s, %d slices, %d units, %d kills of all worker processes", rows-rows/10, took.Round(time.Millisecond), last.Slices, last.Units, kills)
}

// TestTheExamplesThatExpireRows runs the example programs.
func TestTheExamplesThatExpireRows(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]struct{ program, env, create, fill string }{
		"PostgreSQL": {
			"expire", "DATABASE_URL", "ALTER TABLE events ADD created_at timestamptz NOT NULL",
			"INSERT INTO events SELECT i, '', '', now() - i * interval '1 day' FROM generate_series(1, 5000) i",
		},
		"MariaDB": {
			"expire-mysql", "MYSQL_DSN", "ALTER TABLE events ADD created_at datetime NOT NULL",
			"INSERT INTO events SELECT seq, '', '', UTC_TIMESTAMP() - INTERVAL seq DAY FROM seq_1_to_5000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary := filepath.Join(t.TempDir(), e.program)
			out, err := exec.Command("go", "build", "-o", binary, "github.com/resqued/resqued/examples/"+e.program).CombinedOutput()
			require.NoError(t, err, "%s", out)
			db, url := databases[name](t, 1)
			for _, statement := range []string{"DELETE FROM events", e.create, e.fill} {
				_, err := db.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			env := e.env + "=" + strings.TrimPrefix(url, "mysql:")
			d := harness.Start(t, harness.Options{Binary: binary, Env: []string{env}})
			start := exec.Command(binary, "start", "30")
			start.Env = append(os.Environ(), "REDIS_URL="+d.URL, "RESQUE_NAMESPACE="+d.Space, env)
			out, err = start.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.True(t, strings.HasPrefix(string(out), "new "), "%s", out)
			d.AwaitLog("events of the last 30 days are left")
			var left int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM events").Scan(&left))
			require.InDelta(t, 30, left, 1)
		})
	}
}
