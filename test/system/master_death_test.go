package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// killMaster kills the master alone.
func killMaster(t *testing.T, d *harness.Daemon) {
	t.Helper()
	d.Signal(syscall.SIGKILL)
	require.Equal(t, -int(unix.SIGKILL), d.Exit())
	d.ForgetMasters()
}

// successor starts another daemon on the same machine for the same jobs.
func successor(t *testing.T, d *harness.Daemon, o harness.Options) *harness.Daemon {
	t.Helper()
	o.Namespace = d.Space
	next := harness.Start(t, o)
	next.ForgetMasters()
	return next
}

// allGone waits until no process of the daemon is left, and no trace of it in Redis.
func allGone(t *testing.T, d *harness.Daemon) {
	t.Helper()
	began := time.Now()
	proctest.Await(t, patience, func() bool { return len(d.Processes()) == 0 }, "the end of all processes")
	t.Logf("all processes were gone after %s", time.Since(began).Round(time.Millisecond))
	require.Empty(t, d.Residue())
}

func TestIdleWorkersOfADeadMaster(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Workers: 3, Threads: 2})
	proctest.Await(t, patience, func() bool { return len(d.Client.SMembers(t.Context(), d.Key("workers")).Val()) == 6 }, "six registered threads")
	killMaster(t, d)
	allGone(t, d)
}

// TestLongJobOfADeadMaster checks that a long-running job goes on alone: its process takes no
// other job, and a new master neither ends it nor runs it again.
func TestLongJobOfADeadMaster(t *testing.T) {
	t.Parallel()
	o := harness.Options{App: true, Workers: 2, Threads: 2}
	d := harness.Start(t, o)
	d.Push("mail", "Gate", 1)
	d.AwaitNoted("started", 1)
	pid := holder(t, d, 1)
	lock := lockValues(t, d)
	require.Len(t, lock, 1)
	killMaster(t, d)
	proctest.Await(t, patience, func() bool { return len(d.Processes()) == 1 }, "the end of the idle process")
	awaitTitle(t, pid, "draining")
	d.Push("mail", "Count", 2)
	takesNothing(t, d)

	next := successor(t, d, o)
	next.AwaitNoted("ran", 1)
	for range 3 { // rounds of its recoverer, one before each of these jobs at most
		next.Push("mail", "Count", 3)
		<-time.After(time.Second)
	}
	require.True(t, proctest.Alive(pid))
	require.Equal(t, "1", next.Noted("started")["1"])
	require.Equal(t, lock, lockValues(t, next))
	next.Open()
	proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of the old process")
	next.AwaitProcessed(5, patience)
	require.Equal(t, "1", next.Noted("ran")["1"])
	require.Empty(t, next.Failures())
	requireNoLocks(t, next)
	next.Signal(quit)
	require.Zero(t, next.Exit())
	require.Empty(t, next.Residue())
}

// outdoor returns a handler whose command starts a process in a session of its own. The command
// notes each run in the file runs, and in overlap each run that began while the process of the
// run before was alive. It ends when the file open exists.
func outdoor(dir string) string {
	return fmt.Sprintf(`
handlers:
  Outdoor:
    dir: %s
    command:
      - sh
      - -c
      - 'if [ -e child ] && grep -q "^State:.[^ZX]" /proc/$(cat child)/status 2>/dev/null; then echo >>overlap; fi; setsid sleep 1001 & echo $! >child; echo $$ >>runs; until [ -e open ]; do sleep 0.1; done'
`, dir)
}

// runs waits until the command has been started n times.
func runs(t *testing.T, dir string, n int) {
	t.Helper()
	proctest.Await(t, patience, func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return strings.Count(string(text), "\n") >= n
	}, "run %d of the command", n)
}

// sleepers returns the processes that commands have started in sessions of their own.
func sleepers(d *harness.Daemon) (pids []int) {
	for _, p := range d.Processes() {
		if strings.HasPrefix(p.Title, "sleep 1001") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func TestCommandsOfADeadMaster(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, more string) (d *harness.Daemon, o harness.Options, dir string) {
		t.Helper()
		dir = t.TempDir()
		o = harness.Options{Config: outdoor(dir) + more}
		d = harness.Start(t, o)
		d.PushRaw("mail", `{"class":"Outdoor","args":[1]}`)
		runs(t, dir, 1)
		proctest.Await(t, patience, func() bool { return len(sleepers(d)) == 1 }, "the process in its own session")
		return d, o, dir
	}
	// once requires that the job is run to its end by the n-th run.
	once := func(t *testing.T, d *harness.Daemon, dir string, n int) {
		t.Helper()
		runs(t, dir, n)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o600))
		d.AwaitProcessed(1, patience)
		text, err := os.ReadFile(filepath.Join(dir, "runs"))
		require.NoError(t, err)
		require.Equal(t, n, strings.Count(string(text), "\n"))
		require.NoFileExists(t, filepath.Join(dir, "overlap"))
		require.Empty(t, d.Failures())
	}

	t.Run("a command finishes, and what it leaves is ended", func(t *testing.T) {
		t.Parallel()
		d, o, dir := begin(t, "")
		killMaster(t, d)
		next := successor(t, d, o)
		require.Len(t, sleepers(d), 1)
		once(t, next, dir, 1)
		proctest.Await(t, patience, func() bool { return len(d.Processes()) == 0 }, "the end of all old processes")
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Empty(t, next.Residue())
	})

	t.Run("worker processes that die with it leave commands, which the next master ends first", func(t *testing.T) {
		t.Parallel()
		d, o, dir := begin(t, "")
		workers := d.WorkerPIDs()
		killMaster(t, d)
		for _, pid := range workers {
			require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		}
		proctest.Await(t, patience, func() bool { return !proctest.Alive(workers[0]) }, "the end of the worker process")
		require.Len(t, sleepers(d), 1, "nothing is left that could be ended")
		next := successor(t, d, o)
		once(t, next, dir, 2)
		require.Empty(t, d.Processes())
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Empty(t, next.Residue())
	})

	t.Run("with on_master_death: kill the command dies, and the next master ends what it had started first", func(t *testing.T) {
		t.Parallel()
		d, o, dir := begin(t, "on_master_death: kill\n")
		killMaster(t, d)
		proctest.Await(t, patience, func() bool { return len(d.Processes()) == len(sleepers(d)) }, "the end of the worker process and its command")
		next := successor(t, d, o)
		once(t, next, dir, 2)
		require.Empty(t, d.Processes())
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Empty(t, next.Residue())
	})
}

// TestJobsOfADeadMaster checks jobs that ignore cancellation, and signals to a worker process
// that has no master.
func TestJobsOfADeadMaster(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, class, config string) (d *harness.Daemon, o harness.Options, pid int) {
		t.Helper()
		o = harness.Options{App: true, Config: config, Env: []string{"RESQUE_TERM_TIMEOUT=1"}}
		d = harness.Start(t, o)
		d.Push("mail", class, 1)
		d.AwaitNoted("started", 1)
		pid = holder(t, d, 1)
		killMaster(t, d)
		return d, o, pid
	}
	// again requires that the next master runs the job once more, to its end.
	again := func(t *testing.T, d *harness.Daemon, o harness.Options) {
		t.Helper()
		next := successor(t, d, o)
		proctest.Await(t, patience, func() bool { return next.Noted("started")["1"] == "2" }, "the second start")
		next.Open()
		next.AwaitProcessed(1, patience)
		require.Empty(t, next.Failures())
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Empty(t, next.Residue())
	}

	t.Run("QUIT changes nothing: the job finishes", func(t *testing.T) {
		t.Parallel()
		d, _, pid := begin(t, "Stubborn", "")
		awaitTitle(t, pid, "draining")
		require.NoError(t, unix.Kill(pid, quit))
		d.Open()
		allGone(t, d)
		require.Equal(t, "1", d.Noted("ran")["1"])
		require.Equal(t, harness.Snapshot{Processed: 1}, d.Snapshot())
	})

	for _, sig := range []unix.Signal{term, usr1} {
		t.Run(unix.SignalName(sig)+" kills the job, which has failed", func(t *testing.T) {
			t.Parallel()
			d, _, pid := begin(t, "Gate", "")
			awaitTitle(t, pid, "draining")
			require.NoError(t, unix.Kill(pid, sig))
			allGone(t, d)
			wasKilled(t, d.Failures())
			require.Equal(t, harness.Snapshot{Processed: 1, Failed: 1}, d.Snapshot())
			requireNoLocks(t, d)
		})
	}

	// failed requires that the next master records the job as killed.
	failed := func(t *testing.T, d *harness.Daemon, o harness.Options) {
		t.Helper()
		next := successor(t, d, o)
		wasKilled(t, next.AwaitFailures(1))
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Empty(t, next.Residue())
		require.Equal(t, "1", next.Noted("started")["1"])
	}

	t.Run("TERM ends the process of a job that ignores it, which has failed: the next master records that", func(t *testing.T) {
		t.Parallel()
		d, o, pid := begin(t, "Stubborn", "")
		awaitTitle(t, pid, "draining")
		require.NoError(t, unix.Kill(pid, term))
		proctest.Await(t, patience, func() bool { return len(d.Processes()) == 0 }, "the end of the process")
		failed(t, d, o)
	})

	t.Run("the end of drain_timeout ends it, too, and the next master runs the job again", func(t *testing.T) {
		t.Parallel()
		d, o, _ := begin(t, "Stubborn", "drain_timeout: 1\n")
		proctest.Await(t, patience, func() bool { return len(d.Processes()) == 0 }, "the end of the process")
		again(t, d, o)
	})

	t.Run("what its code has started ends with it", func(t *testing.T) {
		t.Parallel()
		d, o, pid := begin(t, "Parent", "")
		proctest.Await(t, patience, func() bool { return len(sleepers(d)) == 1 }, "the process in its own session")
		awaitTitle(t, pid, "draining")
		require.NoError(t, unix.Kill(pid, term))
		proctest.Await(t, patience, func() bool { return len(d.Processes()) == 0 }, "the end of all processes")
		failed(t, d, o)
	})

	t.Run("on_master_death: kill leaves all jobs to the next master", func(t *testing.T) {
		t.Parallel()
		o := harness.Options{App: true, Threads: 3, Config: "on_master_death: kill\n"}
		d := harness.Start(t, o)
		d.Push("mail", "Gate", 1)
		d.Push("mail", "Stubborn", 2)
		d.AwaitNoted("started", 2)
		killMaster(t, d)
		proctest.Await(t, patience, func() bool { return len(d.Processes()) == 0 }, "the end of all processes")
		next := successor(t, d, o)
		proctest.Await(t, patience, func() bool { return ranTwice(next) == 2 }, "the second start of both")
		next.Open()
		next.AwaitProcessed(2, patience)
		require.Empty(t, next.Failures())
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Empty(t, next.Residue())
	})
}
