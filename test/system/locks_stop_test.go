package system_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

const actLock = `locket:job_locks:Act[1]`

// TestStoppedDaemonLosesItsLock stops a daemon with a job in hand, and another daemon takes its
// lock. When the first is continued, its job no longer holds the lock.
func TestStoppedDaemonLosesItsLock(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		host, config string
		least        time.Duration
	}{
		"on this machine":    {"", shortLease, 0}, // whose other daemon kills what is stopped
		"on another machine": {"elsewhere", shortLease, 0},
		"on another machine, for twelve of its ten seconds": {"elsewhere", tenSeconds, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, least := tc.host, tc.least
			o := harness.Options{App: true, Config: tc.config, Trace: t.TempDir(), Host: host}
			if harness.Full() {
				o.Config, least = "", time.Minute
			}
			old := harness.Start(t, o)
			old.Push("mail", "Act", 1)
			old.AwaitNoted("started", 1)
			pid := old.WorkerPIDs()[0]
			old.Stop() // before the other one starts, which may take longer than a lease
			stopped := procfs.BootTime()
			o.Namespace, o.Host = old.Space, ""
			o.Config = "" // the lease of the other daemon alone counts, and this one must not lose its own on a busy machine
			next := harness.Start(t, o)
			proctest.Await(t, 2*time.Minute, func() bool {
				return next.Noted("started")["1"] == "2" && procfs.BootTime()-stopped >= least
			}, "the start in the other daemon")
			require.Equal(t, host != "", proctest.Alive(pid))
			value := lockValues(t, next)[actLock]
			require.NotEmpty(t, value)
			continued := procfs.BootTime()
			old.Continue()
			proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of the process with the old job")
			gone := procfs.BootTime()
			// The master replaces the worker process and works on.
			awaitOthers(t, old, []int{pid}, 1)
			old.Push("mail", "Count", 2)
			old.AwaitNoted("ran", 1)
			old.AwaitProcessed(1, patience)

			require.Equal(t, map[string]string{actLock: value}, lockValues(t, next))
			require.Equal(t, harness.Snapshot{InFlight: 1, Processed: 1}, next.Snapshot())
			next.Open()
			next.AwaitProcessed(2, patience)
			require.Empty(t, next.Failures())
			requireStale(t, readTrace(t, o.Trace), pid, stopped, continued, gone)
			requireNoLocks(t, next)
			for _, d := range []*harness.Daemon{old, next} {
				d.Signal(quit)
				require.Zero(t, d.Exit())
			}
			require.Empty(t, next.Residue())
		})
	}
}

// requireStale checks that what the job of pid did after it was continued can be refused by its
// fence, and is little.
func requireStale(t *testing.T, notes []note, pid int, stopped, continued, gone time.Duration) {
	t.Helper()
	var fence, next int64
	acts, told := 0, false
	last := continued
	for _, n := range notes {
		switch {
		case n.pid != pid:
			require.True(t, next == 0 || next == n.fence)
			next = n.fence
		case n.at < continued:
			require.True(t, fence == 0 || fence == n.fence)
			fence = n.fence
			require.Less(t, n.at, stopped+time.Second, "it acted while it was stopped")
		case n.kind == "told":
			told = true
		default:
			require.Equal(t, "act", n.kind)
			require.Equal(t, fence, n.fence)
			acts, last = acts+1, n.at
		}
	}
	require.Positive(t, fence)
	require.Greater(t, next, fence)
	t.Logf("continued after %s: the old job acted %d times more, for %s, told to stop: %t; its process was gone after %s",
		continued-stopped, acts, last-continued, told, gone-continued)
	require.Less(t, last-continued, harness.Speed(2*time.Second))
}

// TestStoppedWorkerIsKilledInTime stops a worker process alone: its master kills it before its
// locks expire.
func TestStoppedWorkerIsKilledInTime(t *testing.T) {
	t.Parallel()
	t.Run("after a report", func(t *testing.T) {
		t.Parallel()
		stopWorker(t, true)
	})
	t.Run("before its first report", func(t *testing.T) {
		t.Parallel()
		stopWorker(t, false)
	})
}

func stopWorker(t *testing.T, reported bool) {
	t.Helper()
	d := harness.Start(t, harness.Options{
		App: true, Config: "heartbeat_frequency: 4\njob_lock_duration: 12\n", Trace: t.TempDir(),
	})
	d.Push("mail", "Act", 1)
	d.AwaitNoted("started", 1)
	pid := holder(t, d, 1)
	// The title is set with a report, and from the first report the master knows until when the
	// locks are safe.
	if reported {
		proctest.Await(t, patience, func() bool { p, _ := proctest.Look(pid); return strings.Contains(p.Title, "1/1 busy") }, "a report")
	}
	value := lockValues(t, d)[actLock]
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	began := time.Now()
	proctest.Await(t, patience, func() bool {
		// The order matters: a process whose lock is gone must have been dead before.
		now, err := d.Client.Get(context.Background(), d.Key(actLock)).Result()
		alive := proctest.Alive(pid)
		require.False(t, alive && (err != nil || now != value), "the lock is %q (%v) and its holder is there", now, err)
		return !alive
	}, "the end of the stopped process")
	t.Logf("killed after %s; a lock lasts 12s", time.Since(began))
	proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second start")
	d.Open()
	d.AwaitProcessed(1, patience)
	require.Empty(t, d.Failures())
	requireNoLocks(t, d)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}
