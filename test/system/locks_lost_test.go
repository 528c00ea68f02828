package system_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// told reports whether a job was told to stop.
func told(t *testing.T, d *harness.Daemon) bool {
	t.Helper()
	return slices.ContainsFunc(readTrace(t, d.Trace), func(n note) bool { return n.kind == "told" })
}

// losing returns a daemon with a job in hand whose lock is taken by take, or deleted if take is
// nil.
func losing(t *testing.T, class, config string, take func(d *harness.Daemon, lock string)) *harness.Daemon {
	t.Helper()
	kill := longKill
	if class == "Stubborn" {
		kill = shortKill
	}
	d := harness.Start(t, harness.Options{
		App: true, Config: shortLease + config, Trace: t.TempDir(), Env: []string{kill},
	})
	d.Push("mail", class, 1)
	d.AwaitNoted("started", 1)
	lock := d.Key("locket:job_locks:" + class + "[1]")
	require.EqualValues(t, 1, d.Client.Exists(context.Background(), lock).Val())
	if take == nil {
		lose(t, d, lock)
	} else {
		take(d, lock)
	}
	return d
}

// lose deletes the lock of a job until the job has lost it, or is told to stop as no beat came
// through, which ends the same way. To delete it once is not enough: a late beat counts as an
// outage, after which the locks of all running jobs are taken again.
func lose(t *testing.T, d *harness.Daemon, lock string) {
	t.Helper()
	owner := d.Client.Get(context.Background(), lock).Val()
	require.NotEmpty(t, owner)
	proctest.Await(t, patience, func() bool {
		require.NoError(t, d.Client.Eval(context.Background(), `if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1`,
			[]string{lock}, owner).Err())
		return strings.Contains(d.Log(), "a job has lost its lock") || strings.Contains(d.Log(), "told the jobs that hold locks or count under limits to stop")
	}, "the loss of the lock")
}

// TestLockIsLost checks that a running job whose lock is gone is told to stop, and fails or
// runs again.
func TestLockIsLost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	leave := func(t *testing.T, d *harness.Daemon) {
		t.Helper()
		requireNoLocks(t, d)
		d.Signal(quit)
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
	}

	t.Run("the job fails", func(t *testing.T) {
		t.Parallel()
		d := losing(t, "Act", "on_lock_lost: fail\n", nil)
		f := d.AwaitFailures(1)
		require.Equal(t, "Resqued::LockLost", f[0].Exception)
		require.Contains(t, f[0].Error, "lock lost")
		require.True(t, told(t, d))
		require.Equal(t, harness.Snapshot{Processed: 1, Failed: 1}, d.Snapshot())
		require.Equal(t, "1", d.Noted("started")["1"])
		leave(t, d)
	})

	t.Run("the job runs again", func(t *testing.T) {
		t.Parallel()
		d := losing(t, "Act", "on_lock_lost: requeue\n", nil)
		proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second start")
		require.True(t, told(t, d))
		d.Open()
		d.AwaitProcessed(1, patience)
		require.Empty(t, d.Failures())
		leave(t, d)
	})

	t.Run("the job does not listen and fails", func(t *testing.T) {
		t.Parallel()
		d := losing(t, "Stubborn", "on_lock_lost: fail\n", nil)
		pid := holder(t, d, 1)
		f := d.AwaitFailures(1)
		require.Contains(t, f[0].Error, "lock lost")
		require.False(t, proctest.Alive(pid), "it was failed and runs on")
		require.Equal(t, "1", d.Noted("started")["1"])
		leave(t, d)
	})

	t.Run("the job does not listen and runs again", func(t *testing.T) {
		t.Parallel()
		d := losing(t, "Stubborn", "on_lock_lost: requeue\n", nil)
		pid := holder(t, d, 1)
		proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second start")
		require.False(t, proctest.Alive(pid), "it runs twice")
		d.Open()
		d.AwaitProcessed(1, patience)
		require.Empty(t, d.Failures())
		leave(t, d)
	})

	t.Run("another holder has it and keeps it", func(t *testing.T) {
		t.Parallel()
		d := losing(t, "Act", "on_lock_lost: requeue\n", func(d *harness.Daemon, lock string) {
			require.NoError(t, d.Client.Set(ctx, lock, "somebody", time.Hour).Err())
		})
		proctest.Await(t, patience, func() bool {
			s := d.Snapshot()
			return s.Queued == 1 && s.InFlight == 0
		}, "the return of the job to its queue")
		require.True(t, told(t, d))
		lock := d.Key(actLock)
		require.Equal(t, "somebody", d.Client.Get(ctx, lock).Val())
		require.Equal(t, "1", d.Noted("started")["1"])
		require.NoError(t, d.Client.Del(ctx, lock).Err())
		proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second start")
		d.Open()
		d.AwaitProcessed(1, patience)
		require.Empty(t, d.Failures())
		leave(t, d)
	})

	t.Run("redis has lost everything", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		d := harness.Start(t, harness.Options{
			App: true, Config: shortLease, Trace: t.TempDir(), Redis: server, Env: []string{longKill},
		})
		d.Push("mail", "Act", 1)
		d.AwaitNoted("started", 1)
		require.NoError(t, d.Client.FlushAll(ctx).Err())
		proctest.Await(t, patience, func() bool { return told(t, d) }, "a word to the job")
		// The job is forgotten in Redis. The next holder has a higher fence.
		d.Push("mail", "Act", 1)
		d.AwaitNoted("started", 1)
		d.Open()
		d.AwaitProcessed(1, patience)
		require.Empty(t, d.Failures())
		holds := holdsOf(t, readTrace(t, d.Trace))
		require.Len(t, holds, 2)
		require.Greater(t, holds[1].fence, holds[0].fence)
		leave(t, d)
	})
}
