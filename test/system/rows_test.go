package system_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/pgtest"
	"github.com/resqued/resqued/internal/proctest"
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

// TestRowsAreDeletedWhateverIsKilled deletes rows by a daemon whose worker processes are
// killed, while other sessions lock and insert rows.
func TestRowsAreDeletedWhateverIsKilled(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"Delete", "Destroy"} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			rows, kills := 100_000, 4
			if harness.Full() {
				rows, kills = 1_000_000*10/9, 8
			}
			if class == "Destroy" {
				rows /= 10
			}
			pool, url := database(t, rows)
			d := harness.Start(t, harness.Options{App: true, Workers: 2, Env: []string{"RESQUED_TEST_ROWS=" + url}})
			c := longClient(t, d)
			lock, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = lock.Exec(t.Context(), "SELECT FROM events WHERE id IN (1, $1) FOR UPDATE", rows/2+1)
			require.NoError(t, err)

			began := time.Now()
			res, err := c.Enqueue(t.Context(), class, "drop", longjob.Queue("rows"))
			require.NoError(t, err)
			run := func() longjob.Run {
				run, err := c.Get(t.Context(), res.UUID)
				require.NoError(t, err)
				return run
			}
			done := func() int64 {
				if steps := run().Steps; len(steps) > 0 {
					return steps[0].Done
				}
				return 0
			}
			for i := range kills {
				proctest.Await(t, 2*time.Minute, func() bool { return done() > int64(rows*8/10*(i+1)/(kills+1)) }, "progress")
				if i == 0 {
					_, err := pool.Exec(t.Context(), "INSERT INTO events SELECT $1 + i, 'drop', 'late' FROM generate_series(1, 1000) i", rows)
					require.NoError(t, err)
				}
				for _, pid := range d.WorkerPIDs() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			require.NoError(t, lock.Rollback(t.Context()))
			limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			last, err := c.Wait(limit, res.UUID)
			require.NoError(t, err)
			took := time.Since(began)
			require.Equal(t, longjob.StatusCompleted, last.Status, last.Error)
			require.Empty(t, d.Failures())

			var dropped, kept, late, archived, twice int
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE kind = 'drop' AND id <= $1), count(*) FILTER (WHERE kind = 'keep'), count(*) FILTER (WHERE id > $1) FROM events", rows).Scan(&dropped, &kept, &late))
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*), count(*) - count(DISTINCT id) FROM archive").Scan(&archived, &twice))
			require.Zero(t, dropped)
			require.Equal(t, rows/10, kept)
			require.Equal(t, 1000, late, "those that were added meanwhile, above the others, stay")
			if class == "Destroy" {
				require.Equal(t, rows-rows/10, archived)
				require.Zero(t, twice)
			}
			t.Logf("%d rows gone in %s, %d slices, %d units, %d kills of all worker processes", rows-rows/10, took.Round(time.Millisecond), last.Slices, last.Units, kills)
		})
	}
}

// TestTheExampleThatExpiresRows runs the example program.
func TestTheExampleThatExpiresRows(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "expire")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/resqued/resqued/examples/expire").CombinedOutput()
	require.NoError(t, err, "%s", out)
	pool, url := database(t, 0)
	_, err = pool.Exec(t.Context(), "ALTER TABLE events ADD created_at timestamptz NOT NULL; INSERT INTO events SELECT i, '', '', now() - i * interval '1 day' FROM generate_series(1, 5000) i")
	require.NoError(t, err)
	d := harness.Start(t, harness.Options{Binary: binary, Env: []string{"DATABASE_URL=" + url}})
	start := exec.Command(binary, "start", "30")
	start.Env = append(os.Environ(), "REDIS_URL="+d.URL, "RESQUE_NAMESPACE="+d.Space, "DATABASE_URL="+url)
	out, err = start.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, strings.HasPrefix(string(out), "new "), "%s", out)
	d.AwaitLog("events of the last 30 days are left")
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM events").Scan(&left))
	require.InDelta(t, 30, left, 1)
}
