package system_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestUSR1ThenACrash lets a process die after USR1, before the jobs that it was to kill have
// stopped: they have failed. A job that began later was not to be killed, and runs again.
func TestUSR1ThenACrash(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 2, Env: []string{"RESQUE_TERM_TIMEOUT=300"}})
	d.Push("mail", "Stubborn", 1)
	d.AwaitNoted("started", 1)
	pid := holder(t, d, 1)
	d.Signal(usr1)
	d.AwaitLog("told to kill jobs")
	d.Push("mail", "Gate", 2)
	d.AwaitNoted("started", 2)
	require.Equal(t, pid, holder(t, d, 2), "in the same process")
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	failures := d.AwaitFailures(1)
	require.Equal(t, "Resque::DirtyExit", failures[0].Exception)
	require.Equal(t, "Job was killed", failures[0].Error)
	proctest.Await(t, patience, func() bool { return d.Noted("started")["2"] == "2" }, "the job that began after USR1 runs again")
	d.Open()
	d.AwaitProcessed(2, patience)
	require.Equal(t, map[string]string{"2": "1"}, d.Noted("ran"))
	require.Len(t, d.Failures(), 1)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

// TestUSR1AndTheMasterHangs: a process ends for a job that ignores USR1 while its master hangs
// until another daemon recovers its jobs. Killed jobs count as failed there, too.
func TestUSR1AndTheMasterHangs(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 2, Env: []string{"RESQUE_TERM_TIMEOUT=1"}})
	d.Push("mail", "Stubborn", 1)
	d.AwaitNoted("started", 1)
	pid := holder(t, d, 1)
	d.Signal(usr1)
	d.AwaitLog("told to kill jobs")
	d.Push("mail", "Stubborn", 2)
	d.AwaitNoted("started", 2)
	require.Equal(t, pid, holder(t, d, 2), "in the same process")
	require.NoError(t, unix.Kill(d.PID, unix.SIGSTOP))
	t.Cleanup(func() { _ = unix.Kill(d.PID, unix.SIGCONT) })
	proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of the process")

	other := harness.Start(t, harness.Options{App: true, Namespace: d.Space})
	// Its lease ends now instead of after half a minute.
	leases, err := d.Client.ZRange(t.Context(), d.Key("resqued:procs"), 0, -1).Result()
	require.NoError(t, err)
	for _, name := range leases {
		if held := d.Client.HLen(t.Context(), d.Key("resqued:inflight:"+name)).Val(); held > 0 {
			require.NoError(t, d.Client.ZAddXX(t.Context(), d.Key("resqued:procs"), redis.Z{Score: 1, Member: name}).Err())
		}
	}
	failures := d.AwaitFailures(1)
	require.Equal(t, "Resque::DirtyExit", failures[0].Exception)
	require.Equal(t, "Job was killed", failures[0].Error)
	proctest.Await(t, patience, func() bool { return d.Noted("started")["2"] == "2" }, "the job that began after USR1 runs again")
	require.NoError(t, unix.Kill(d.PID, unix.SIGCONT))
	d.Open()
	d.AwaitProcessed(2, patience)
	require.Equal(t, map[string]string{"1": "1", "2": "2"}, d.Noted("started"))
	require.Len(t, d.Failures(), 1)
	for _, one := range []*harness.Daemon{d, other} {
		one.Signal(quit)
		require.Zero(t, one.Exit())
	}
	require.Empty(t, d.Residue())
}

// TestUSR1WhileRedisIsAway sends USR1 while Redis is away, which lasts until QUIT has ended
// everything. The process that recovers the killed jobs records them as failed.
func TestUSR1WhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable)
	d := harness.Start(t, harness.Options{
		Redis: server, Env: []string{"RESQUE_TERM_TIMEOUT=1"}, Config: "handlers:\n  Wait: {command: [sleep, '1000']}\n",
	})
	d.Push("mail", "Wait", 1)
	d.AwaitStatus("1/1 busy") // a record in Redis does not mean that the process has read the reply
	server.Kill()
	d.Signal(usr1)
	d.AwaitLog("told to kill jobs")
	d.Signal(quit)
	d.AwaitLog("redis does not take what has ended")
	server.Restart()
	require.Zero(t, d.Exit())
	failures := d.AwaitFailures(1)
	require.Equal(t, "Job was killed", failures[0].Error)
	require.Empty(t, d.Keys("queue:*"))
}
