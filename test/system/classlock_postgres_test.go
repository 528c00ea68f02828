package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/locker"
	"github.com/resqued/resqued/test/system/harness"
)

// TestClassLockInPostgres runs two daemons on jobs of a class whose lock is in PostgreSQL, and
// kills, stops and cuts off their worker processes. Two commands never live at the same time,
// and no job is lost.
func TestClassLockInPostgres(t *testing.T) {
	t.Parallel()
	lasts := 10 * time.Second
	if harness.Full() {
		lasts = time.Minute
	}
	server := pgtest.Start(t, pgtest.Options{})
	pool, err := pgxpool.New(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, locker.Migrate(t.Context(), pool, ""))
	log := filepath.Join(t.TempDir(), "log")

	o := harness.Options{Workers: 2, Env: []string{"DATABASE_URL=" + server.URL("")}, Config: fmt.Sprintf(`
job_lock_duration: 3
heartbeat_frequency: 1
resque_term_timeout: 1
max_deaths: 1000
on_lock_lost: requeue
handlers:
  Witness:
    command: [%q]
    env: {%s: %q}
    lock: {store: postgres, class_wide: true, on_locked: requeue}
`, os.Args[0], witnessVariable, log)}
	one := harness.Start(t, o)
	o.Namespace = one.Space
	harness.Start(t, o)
	const jobs = 200
	one.Push("mail", "Witness", harness.Range(1, jobs)...)

	key := one.Key("lock:Witness")
	holder := func() (pid int) {
		proctest.Await(t, 60*time.Second, func() bool {
			rows, err := locker.List(t.Context(), pool, "", key)
			if err != nil || len(rows) == 0 || !rows[0].Held() {
				return false
			}
			m := lockedBy.FindStringSubmatch(rows[0].LockedBy)
			if m == nil {
				return false
			}
			pid, _ = strconv.Atoi(m[1])
			return len(proctest.Children(pid)) > 0
		}, "a job that holds the lock")
		return pid
	}
	faults := []struct {
		name string
		hit  func()
	}{
		{"kill", func() { _ = syscall.Kill(holder(), syscall.SIGKILL) }},
		{"cut", func() {
			holder()
			_, _ = pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'resqued class locks'")
		}},
		{"stop", func() {
			pid := holder()
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			<-time.After(4 * time.Second)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}},
		{"restart", func() {
			holder()
			_ = server.Restart(t.Context())
			pool.Reset()
		}},
	}
	counts := map[string]int{}
	for n, began := 0, time.Now(); n < 2*len(faults) || time.Since(began) < lasts; n++ {
		fault := faults[n%len(faults)]
		fault.hit()
		counts[fault.name]++
	}
	holder() // work goes on
	require.EqualValues(t, jobs, one.Snapshot().Jobs())
	stdout, _, code := one.Run("locks", "--config", one.ConfigFile, "--kind", "postgres", "-o", "name")
	require.Zero(t, code)
	require.Contains(t, stdout, key)
	n := judgeLives(t, log)
	t.Logf("%d commands, faults %v, failures %d", n, counts, len(one.Failures()))
	require.Greater(t, n, 1, "it has seen hardly anything")
}
