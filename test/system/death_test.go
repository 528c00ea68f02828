package system_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// byClass returns the failures by the class in their payloads. It requires that each is of a
// job whose process died.
func byClass(t *testing.T, failures []harness.Failure) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, f := range failures {
		require.Equal(t, "Resque::DirtyExit", f.Exception)
		class, _, found := strings.Cut(strings.TrimPrefix(string(f.Payload), `{"class":"`), `"`)
		require.True(t, found, "%s", f.Payload)
		texts[class] += f.Error
	}
	return texts
}

// killWorkers kills all worker processes at once and waits until the locks of their jobs are
// free.
func killWorkers(t *testing.T, d *harness.Daemon) {
	t.Helper()
	held := lockValues(t, d)
	require.NotEmpty(t, held)
	for _, pid := range d.WorkerPIDs() {
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	}
	took := awaitFree(t, d, held, unexpired)
	t.Logf("%d jobs are moved and their locks free after %s", len(held), took)
}

func nothingRunsAgain(t *testing.T, d *harness.Daemon) {
	t.Helper()
	require.Empty(t, d.Keys("queue:*"))
	require.Empty(t, d.Keys("resqued:suspects*"))
	require.Empty(t, d.Keys("resqued:deaths*"))
	requireNoLocks(t, d)
	requireNoClassLocks(t, d)
}

func leavesNothing(t *testing.T, d *harness.Daemon) {
	t.Helper()
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

// TestJobsOfTheDeadFail checks the effect of on_worker_death.
func TestJobsOfTheDeadFail(t *testing.T) {
	t.Parallel()
	t.Run("a killed process", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Threads: 3, Env: []string{"ON_WORKER_DEATH=fail"}})
		d.Push("mail", "Gate", 1)
		d.Push("mail", "Untimed", 2) // has a class lock
		d.Push("mail", "Act", 3)
		d.AwaitNoted("started", 3)
		require.NotEmpty(t, classLock(d, "Untimed"))
		killWorkers(t, d)
		failures := byClass(t, d.AwaitFailures(3))
		for class, others := range map[string][]string{"Gate": {"Untimed", "Act"}, "Untimed": {"Gate", "Act"}, "Act": {"Gate", "Untimed"}} {
			require.Regexp(t, `^worker process died: signal SIGKILL; peak memory \d+ MiB; on_worker_death is fail; at the same time ran \w+, \w+$`, failures[class])
			for _, other := range others {
				require.Contains(t, failures[class], other)
			}
		}
		nothingRunsAgain(t, d)
		require.Equal(t, harness.Snapshot{Processed: 3, Failed: 3}, d.Snapshot())
		d.Open()
		d.Push("mail", "Count", 4)
		d.AwaitProcessed(4, patience)
		require.True(t, allAre(d.Noted("started"), 3, "1"))
		leavesNothing(t, d)
	})

	t.Run("a panic in a goroutine of a handler", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Config: "on_worker_death: fail\n"})
		d.Push("mail", "Bomb", 1)
		failure := byClass(t, d.AwaitFailures(1))["Bomb"]
		require.Regexp(t, `^worker process died: exit code 2; peak memory \d+ MiB; on_worker_death is fail$`, failure)
		d.Push("mail", "Count", 2)
		d.AwaitProcessed(2, patience)
		nothingRunsAgain(t, d)
		leavesNothing(t, d)
	})

	t.Run("by default it runs again, three times in all", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		d.Push("mail", "Bomb", 1)
		require.Contains(t, byClass(t, d.AwaitFailures(1))["Bomb"], "worker process died: exit code 2;")
		require.Equal(t, "3", d.Noted("started")["1"])
		nothingRunsAgain(t, d)
	})
}

const onceText = "; at_most_once: it may have run, so it does not run again by itself"

// TestAtMostOnce checks classes that have a policy of their own.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	t.Run("a function fails, its neighbours run again", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Threads: 3, Config: "max_deaths: 1000\n"})
		d.Push("mail", "Once", 1)
		d.Push("mail", "Gate", 2, 3)
		d.AwaitNoted("started", 3)
		killWorkers(t, d)
		failure := byClass(t, d.AwaitFailures(1))["Once"]
		require.Contains(t, failure, "worker process died: signal SIGKILL; peak memory ")
		require.Contains(t, failure, onceText+"; at the same time ran Gate, Gate")
		proctest.Await(t, patience, func() bool { return ranTwice(d) == 2 }, "the second runs of its neighbours")
		require.Equal(t, "1", d.Noted("started")["1"])
		d.Open()
		d.AwaitProcessed(3, patience)
		nothingRunsAgain(t, d)

		_, stderr, code := d.Run("failed", "retry", "--class", "Once", "--yes")
		require.Zero(t, code, stderr)
		d.AwaitProcessed(4, patience)
		require.Equal(t, "2", d.Noted("started")["1"], "a person wanted it")
		leavesNothing(t, d)
	})

	t.Run("it may go back if a person or its own code wants that", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		d.Push("mail", "Once", 1)
		d.AwaitNoted("started", 1)
		k := killJob(t, d, jobOf(t, d, 1).ID, "--requeue")
		require.True(t, k.Requeued)
		proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second run")
		d.Open()
		d.AwaitProcessed(1, patience)
		require.Empty(t, d.Failures())
	})

	t.Run("a lost lock is a failure", func(t *testing.T) {
		t.Parallel()
		d := losing(t, "Once", "on_lock_lost: requeue\n", nil)
		require.Equal(t, "Resqued::LockLost", d.AwaitFailures(1)[0].Exception)
		nothingRunsAgain(t, d)
		require.Equal(t, "1", d.Noted("started")["1"])
	})

	t.Run("a command", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{Threads: 2, Config: `
handlers:
  Pay:
    command: [sh, -c, "echo ran >>pay; until [ -e end ]; do sleep 0.05; done"]
    at_most_once: true
  Other:
    command: [sh, -c, "echo ran >>other; until [ -e end ]; do sleep 0.05; done"]
`})
		lines := func(name string) string {
			text, _ := os.ReadFile(filepath.Join(d.Dir, name))
			return string(text)
		}
		d.PushRaw("mail", `{"class":"::Pay","args":[1]}`, `{"class":"Other","args":[2]}`)
		proctest.Await(t, patience, func() bool { return lines("pay") != "" && lines("other") != "" }, "the start of both")
		killWorkers(t, d)
		require.Contains(t, byClass(t, d.AwaitFailures(1))["::Pay"], onceText+"; at the same time ran Other")
		proctest.Await(t, patience, func() bool { return lines("other") == "ran\nran\n" }, "the second run of the other one")
		d.Touch("end")
		d.AwaitProcessed(2, patience)
		require.Equal(t, "ran\n", lines("pay"))
		nothingRunsAgain(t, d)
		leavesNothing(t, d)
	})
}

// TestPolicyOfADaemonThatIsGone checks that the jobs of a dead daemon are handled by its own
// policy, although the daemon that recovers them is configured differently and does not know
// their classes.
func TestPolicyOfADaemonThatIsGone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config, other string
		host          string
		failures      map[string]string
	}{
		"requeue": {"on_worker_death: requeue\n", "on_worker_death: fail\n", "", map[string]string{"Once": onceText}},
		"fail":    {"on_worker_death: fail\n", "on_worker_death: requeue\n", "", map[string]string{"Once": onceText, "Gate": "; on_worker_death is fail"}},
		"on another machine": {
			config: "on_worker_death: requeue\n", host: "elsewhere", failures: map[string]string{"Once": onceText},
			other: "on_worker_death: fail\nhandlers: {Gate: {command: [x], at_most_once: true}}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{App: true, Threads: 2, Config: shortLease + tc.config, Host: tc.host})
			d.Push("mail", "Once", 1)
			d.Push("mail", "Gate", 2)
			d.AwaitNoted("started", 2)
			next := harness.Start(t, harness.Options{Queues: "none", Config: shortLease + tc.other, Namespace: d.Space})
			next.ForgetMasters()
			held := lockValues(t, d)
			d.KillTree()
			awaitFree(t, next, held, unexpired)
			failures := byClass(t, next.AwaitFailures(len(tc.failures)))
			require.Len(t, failures, len(tc.failures))
			for class, text := range tc.failures {
				require.Contains(t, failures[class], "worker process died: its ")
				require.Contains(t, failures[class], text)
			}
			waits := next.Client.LRange(context.Background(), next.Key("queue:mail"), 0, -1).Val()
			if tc.failures["Gate"] == "" {
				require.Equal(t, []string{`{"class":"Gate","args":[2]}`}, waits)
			} else {
				require.Empty(t, waits)
			}
			requireNoLocks(t, next)
			requireNoClassLocks(t, next)
			leavesNothing(t, next)
		})
	}
}
