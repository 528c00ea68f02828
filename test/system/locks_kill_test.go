package system_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// shortLease makes locks and leases short, but not so short that they end when two cores are
// busy.
const shortLease = "heartbeat_frequency: 1\njob_lock_duration: 3\n"

// lockValues returns the values of the held job locks by key.
func lockValues(t *testing.T, d *harness.Daemon) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, key := range d.Keys("locket:job_locks:*") {
		if value, err := d.Client.Get(context.Background(), d.Key(key)).Result(); err == nil {
			values[key] = value
		}
	}
	return values
}

// holding returns a daemon whose one worker process holds n locks, one per thread, for jobs
// that last until the gate is opened.
func holding(t *testing.T, n int, o harness.Options) (*harness.Daemon, map[string]string) {
	t.Helper()
	o.App, o.Threads = true, n
	d := harness.Start(t, o)
	d.Push("mail", "Gate", harness.Range(1, n)...)
	d.AwaitNoted("started", n)
	held := lockValues(t, d)
	require.Len(t, held, n)
	return d, held
}

// awaitFree waits until none of the locks has its old holder, and returns how long that has
// taken. A lock with another holder has been free.
func awaitFree(t *testing.T, d *harness.Daemon, held map[string]string, limit time.Duration) time.Duration {
	t.Helper()
	keys := slices.Collect(maps.Keys(held))
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = d.Key(key)
	}
	began, left := time.Now(), 0
	deadline := began.Add(limit)
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		values, err := d.Client.MGet(context.Background(), names...).Result()
		require.NoError(t, err)
		left = 0
		for i, value := range values {
			if value == held[keys[i]] {
				left++
			}
		}
		if left == 0 {
			tick.Stop()
			return time.Since(began)
		}
		require.True(t, time.Now().Before(deadline), "%d of %d locks are still held after %s", left, len(held), limit)
	}
}

// TestLocksOfAKilledWorker kills a worker process that holds sixteen locks: its master frees
// them.
func TestLocksOfAKilledWorker(t *testing.T) {
	t.Parallel()
	const threads = 16
	t.Run("its jobs run again", func(t *testing.T) {
		t.Parallel()
		d, held := holding(t, threads, harness.Options{Trace: t.TempDir()})
		require.NoError(t, unix.Kill(d.WorkerPIDs()[0], unix.SIGKILL))
		took := awaitFree(t, d, held, unexpired)
		t.Logf("%d locks are free after %s", threads, took)
		proctest.Await(t, patience, func() bool { return ranTwice(d) > 0 }, "the second start of a job, alone")
		d.Open()
		d.AwaitProcessed(threads, patience)
		require.Empty(t, d.Failures())
		require.True(t, allAre(d.Noted("started"), threads, "2"))
		// Holds that ended with the killed process have no end.
		var ended []hold
		for _, h := range holdsOf(t, readTrace(t, d.Trace)) {
			if h.ended {
				ended = append(ended, h)
			}
		}
		require.Len(t, ended, threads)
		requireNoLocks(t, d)
		d.Signal(quit)
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
	})

	t.Run("its jobs fail where one death is too many", func(t *testing.T) {
		t.Parallel()
		d, held := holding(t, threads, harness.Options{Config: "max_deaths: 1\n"})
		require.NoError(t, unix.Kill(d.WorkerPIDs()[0], unix.SIGKILL))
		took := awaitFree(t, d, held, unexpired)
		t.Logf("%d locks are free after %s", threads, took)
		for _, f := range d.AwaitFailures(threads) {
			require.Equal(t, "Resque::DirtyExit", f.Exception)
		}
		requireNoLocks(t, d)
		require.True(t, allAre(d.Noted("started"), threads, "1"))
		d.Signal(quit)
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
	})
}

func allAre(noted map[string]string, n int, text string) bool {
	for _, value := range noted {
		if value != text {
			return false
		}
	}
	return len(noted) == n
}

// TestLocksOfAKilledDaemon kills a whole daemon: another one frees its locks.
func TestLocksOfAKilledDaemon(t *testing.T) {
	t.Parallel()
	const threads = 16
	for name, host := range map[string]string{
		"on this machine":    "",
		"on another machine": "elsewhere",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, held := holding(t, threads, harness.Options{Config: shortLease, Host: host})
			next := harness.Start(t, harness.Options{App: true, Threads: threads, Config: shortLease, Namespace: d.Space})
			next.ForgetMasters()
			d.KillTree()
			took := awaitFree(t, next, held, unexpired)
			t.Logf("%d locks are free after %s", threads, took)
			proctest.Await(t, patience, func() bool { return allAre(next.Noted("started"), threads, "2") }, "the second start of all jobs")
			next.Open()
			next.AwaitProcessed(threads, patience)
			require.Empty(t, next.Failures())
			requireNoLocks(t, next)
			next.Signal(quit)
			require.Zero(t, next.Exit())
			require.Empty(t, next.Residue())
		})
	}
}
