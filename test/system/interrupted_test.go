package system_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// Jobs that a drain does not wait for run again with the next daemon, once: functions that
// react, functions that do not, and commands, which get TERM first and then KILL.
func TestDrainTimeoutRunsJobsAgain(t *testing.T) {
	t.Parallel()
	o := harness.Options{App: true, Threads: 3, Env: []string{shortKill}, Config: `drain_timeout: {after: 1s}
handlers:
  Told: {command: [sh, -c, 'trap "echo told >> told" TERM; echo $$ >> began; while [ ! -e go ]; do sleep 0.05; done'], kill_after: 1s}
`}
	d := harness.Start(t, o)
	d.Push("mail", "Act", 1)
	d.Push("mail", "Stubborn", 2)
	d.AwaitNoted("started", 2)
	d.Push("mail", "Told", 3)
	lines := func(name string) int {
		text, _ := os.ReadFile(filepath.Join(d.Dir, name))
		n := 0
		for _, b := range text {
			if b == '\n' {
				n++
			}
		}
		return n
	}
	proctest.Await(t, patience, func() bool { return lines("began") == 1 }, "the command")
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Equal(t, 1, lines("told"), "TERM, before KILL")
	d.AwaitLog("drain_timeout")
	require.Equal(t, harness.Snapshot{Queued: 3}, d.Snapshot())
	require.Empty(t, d.Residue())
	requireNoLocks(t, d)
	require.Empty(t, d.Client.Keys(t.Context(), d.Key("resqued:deaths*")).Val(), "none has died")

	next := successor(t, d, o)
	proctest.Await(t, patience, func() bool { return ranTwice(next) == 2 }, "the second start of both")
	next.Open()
	require.NoError(t, os.WriteFile(filepath.Join(next.Dir, "go"), nil, 0o600))
	next.AwaitProcessed(3, patience)
	require.Empty(t, next.Failures())
	require.Equal(t, map[string]string{"1": "2", "2": "2"}, next.Noted("started"))
	next.Signal(quit)
	require.Zero(t, next.Exit())
}

// A job with a lock is stopped while Redis is away, and runs again when it is back.
func TestLockedJobsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	d := harness.Start(t, harness.Options{App: true, Redis: server, Config: shortLease, Env: []string{longKill}, Trace: t.TempDir()})
	d.Push("mail", "Act", 1)
	d.AwaitNoted("started", 1)
	server.Hang()
	d.AwaitLog("told the jobs that hold locks or count under limits to stop")
	awaitTitle(t, d.PID, "Redis away for ")
	server.Resume()
	proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second start")
	d.Open()
	d.AwaitProcessed(1, patience)
	require.Empty(t, d.Failures())
	require.Equal(t, harness.Snapshot{Processed: 1}, d.Snapshot())
	require.Empty(t, d.Client.Keys(t.Context(), d.Key("resqued:deaths*")).Val())
	d.Signal(quit)
	require.Zero(t, d.Exit())
}

// A changed password is read from its file for each new connection: the daemon continues as soon
// as it works, without a signal. Until then its title shows the problem, and new worker
// processes wait.
func TestPasswordIsChanged(t *testing.T) {
	t.Parallel()
	redistest.NeedsMajor(t, 6)
	server := redistest.Start(t, redistest.Options{})
	admin := server.Client(t)
	change := func(password string) {
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", "resetpass", ">"+password, "~*", "&*", "+@all").Err())
	}
	change("one")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("one\n"), 0o600))
	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	u.User = url.User("app")
	d := harness.Start(t, harness.Options{
		App: true, Redis: server, Config: "redis_password_file: " + file + "\n", Env: []string{"REDIS_URL=" + u.String()},
	})
	change("two")
	require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err())
	awaitTitle(t, d.PID, "Redis refusing for ")
	awaitTitle(t, d.PID, ": WRONGPASS ")
	old := d.WorkerPIDs()
	require.NoError(t, unix.Kill(old[0], unix.SIGKILL))
	d.AwaitLog("cannot register")
	awaitTitle(t, d.PID, ": WRONGPASS ")
	require.False(t, d.Ended())
	require.NoError(t, os.WriteFile(file, []byte("two\n"), 0o600))
	d.AwaitLog(`"redis is back"`)
	d.Push("mail", "Count", 1)
	d.AwaitNoted("ran", 1)
	awaitTitle(t, d.PID, "master: running")
	d.Signal(quit)
	require.Zero(t, d.Exit())
}
