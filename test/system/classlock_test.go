package system_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// classLock returns the value of a class lock, or "" if it is free.
func classLock(d *harness.Daemon, name string) string {
	return d.Client.Get(context.Background(), d.Key("lock:"+name)).Val()
}

// requireNoClassLocks requires that no keys of class locks are left.
func requireNoClassLocks(t *testing.T, d *harness.Daemon) {
	t.Helper()
	for _, pattern := range []string{"lock:*", "loner:*", "resqued:held:*"} {
		proctest.Await(t, patience, func() bool { return len(d.Keys(pattern)) == 0 }, "the last of %s", pattern)
	}
}

func pushTimed(d *harness.Daemon, id, milliseconds int, stubborn bool) {
	d.PushRaw("mail", fmt.Sprintf(`{"class":"Timed","args":[%d,%d,%t]}`, id, milliseconds, stubborn))
}

func TestClassLockWithATimeLimit(t *testing.T) {
	t.Parallel()
	t.Run("past it the program is told, the job killed, and the lock free", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Threads: 2})
		pushTimed(d, 1, 300, false)
		d.AwaitNoted("expired", 1)
		failure := d.AwaitFailures(1)[0]
		require.Equal(t, "Resqued::Timeout", failure.Exception)
		require.Contains(t, failure.Error, "held its class lock longer than 300ms")
		requireNoClassLocks(t, d)
		pushTimed(d, 2, 60000, false)
		d.AwaitNoted("started", 2)
		d.Open()
		d.AwaitProcessed(2, patience)
		d.Signal(quit)
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
	})

	t.Run("one that ignores it costs its process, and then the lock is free", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Config: "resque_term_timeout: 0.3\n"})
		old := d.WorkerPIDs()
		pushTimed(d, 1, 300, true)
		require.Equal(t, "Resque::DirtyExit", d.AwaitFailures(1)[0].Exception)
		awaitOthers(t, d, old, 1)
		requireNoClassLocks(t, d)
	})

	t.Run("who finishes late releases no lock that another has", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		pushTimed(d, 1, 300, true)
		d.AwaitNoted("expired", 1)
		// A worker of resque-lock-timeout takes the lock after its time limit has passed.
		gems := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
		require.NoError(t, d.Client.Set(t.Context(), d.Key("lock:Timed"), gems, 0).Err())
		d.Open()
		d.AwaitProcessed(1, patience)
		require.Empty(t, d.Failures())
		require.Equal(t, gems, classLock(d, "Timed"))
		require.Empty(t, d.Keys("resqued:held:*"))
	})
}

// TestClassLockOfAKilledWorker checks that a lock without a time limit does not outlive its
// holder.
func TestClassLockOfAKilledWorker(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Workers: 2})
	d.Push("mail", "Untimed", 1)
	d.AwaitNoted("started", 1)
	holder := classLock(d, "Untimed")
	require.Regexp(t, `^true:resqued:.*#\d+$`, holder)
	d.Push("mail", "Untimed", 2)
	d.AwaitNoted("locked", 1)

	pid, err := strconv.Atoi(d.Noted("pid")["1"])
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	proctest.Await(t, unexpired, func() bool { return classLock(d, "Untimed") != holder }, "the release of the lock, before it expires")
	t.Logf("the lock is free after %s", time.Since(began))

	d.Open()
	d.AwaitProcessed(2, patience)
	require.Empty(t, d.Failures())
	requireNoClassLocks(t, d)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

// TestClassLockOfACommand checks what commands can do with class locks.
func TestClassLockOfACommand(t *testing.T) {
	t.Parallel()
	const config = `
handlers:
  Refresh:
    command: [sh, -c, "touch began; until [ -e go ]; do sleep 0.05; done; echo '{\"refresh_lock\":true}' >&3; until [ -e end ]; do sleep 0.05; done"]
    queue: mail
    lock: {timeout: 1h, args: [0], loner: true}
`
	d := harness.Start(t, harness.Options{Config: config})
	enqueue := func(want string) {
		t.Helper()
		stdout, stderr, code := d.Run("enqueue", "--config", d.ConfigFile, "Refresh", "7")
		require.Zero(t, code)
		require.Contains(t, stdout+stderr, want)
	}
	enqueue("enqueued Refresh[7] to mail")
	proctest.Await(t, patience, func() bool {
		found, _ := filepath.Glob(filepath.Join(d.Dir, "began"))
		return len(found) == 1
	}, "the start of the command")
	require.Empty(t, d.Keys("loner:*"), "it waits no longer")
	enqueue("one with the same lock runs")

	key := d.Key("lock:Refresh:7")
	require.NoError(t, d.Client.Expire(t.Context(), key, 10*time.Minute).Err())
	d.Touch("go")
	proctest.Await(t, patience, func() bool { return d.Client.TTL(t.Context(), key).Val() > 50*time.Minute }, "the refresh")
	d.Touch("end")
	d.AwaitProcessed(1, patience)
	require.Empty(t, d.Failures())
	requireNoClassLocks(t, d)
	enqueue("enqueued Refresh[7] to mail")
	d.AwaitProcessed(2, patience)
	requireNoClassLocks(t, d)
}
