package system_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// suspectTitle is how ps shows a process for a suspect.
const suspectTitle = "resqued (resque-3): worker for a suspect"

func suspectProcesses(d *harness.Daemon) []proctest.Process {
	return slices.DeleteFunc(d.Workers(), func(p proctest.Process) bool { return !strings.HasPrefix(p.Title, suspectTitle) })
}

// isolate kills every worker process that holds one of some Gate jobs, and waits until each of
// these runs alone in its process.
func isolate(t *testing.T, d *harness.Daemon, ids ...int) {
	t.Helper()
	d.Push("mail", "Gate", ids...)
	d.AwaitNoted("started", len(ids))
	killed := map[int]bool{}
	for _, id := range ids {
		if pid := holder(t, d, id); !killed[pid] {
			killed[pid] = true
			require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		}
	}
	proctest.Await(t, patience, func() bool { return ranTwice(d) == len(ids) && len(suspectProcesses(d)) == len(ids) },
		"%d jobs that run alone", len(ids))
	pids := d.Noted("pid")
	for _, id := range ids {
		for _, other := range ids {
			require.False(t, id != other && pids[strconv.Itoa(id)] == pids[strconv.Itoa(other)], "%v", pids)
		}
	}
}

func wereKilled(t *testing.T, failures []harness.Failure) {
	t.Helper()
	require.Len(t, failures, 3)
	for _, f := range failures {
		require.Equal(t, "Resque::DirtyExit", f.Exception)
		require.Contains(t, f.Error, "Job was killed")
	}
}

func ranTwice(d *harness.Daemon) int {
	n := 0
	for _, times := range d.Noted("started") {
		if times == "2" {
			n++
		}
	}
	return n
}

// TestPoisonAmongMany works fifty jobs, one of which kills its process of sixteen threads, and
// each process after that.
func TestPoisonAmongMany(t *testing.T) {
	t.Parallel()
	const bystanders, poison = 50, 1001
	d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 16})
	d.Signal(usr2)
	d.AwaitStatus("paused")
	for id := 1; id <= bystanders; id++ {
		ms := 5
		if id%3 == 0 {
			ms = 700
		}
		d.PushRaw("mail", fmt.Sprintf(`{"class":"Sleep","args":[%d,%d]}`, id, ms))
		if id == bystanders/4 {
			d.Push("mail", "Crash", poison)
		}
	}
	began := time.Now()
	d.Signal(cont)
	failures := d.AwaitFailures(1)
	failed := time.Since(began)
	d.AwaitNoted("ran", bystanders)
	d.AwaitProcessed(bystanders+1, patience)
	t.Logf("the poison job failed after %s, all was done after %s", failed.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))

	require.Len(t, d.Failures(), 1)
	require.Contains(t, string(failures[0].Payload), strconv.Itoa(poison))
	require.Equal(t, "Resque::DirtyExit", failures[0].Exception)
	require.Contains(t, failures[0].Error, "exit code 9")
	require.Contains(t, failures[0].Error, "death 3 of 3")
	require.NotContains(t, failures[0].Error, "at the same time")
	started := d.Noted("started")
	require.Equal(t, "3", started[strconv.Itoa(poison)])
	delete(started, strconv.Itoa(poison))
	again := 0
	for id, times := range started {
		require.Contains(t, []string{"1", "2"}, times, "job %s has died more than once", id)
		if times == "2" {
			again++
		}
	}
	t.Logf("%d of %d bystanders ran twice", again, bystanders)
	require.LessOrEqual(t, again, 15, "only those of one process died")
	for id, times := range d.Noted("ran") {
		// A job that was done but not recorded when its process died is done twice.
		require.LessOrEqual(t, times, started[id], "job %s", id)
	}
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
	require.Empty(t, d.Keys("resqued:suspects*"))
	require.Empty(t, d.Keys("resqued:deaths*"))
}

func TestSignalsReachSuspects(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *harness.Daemon {
		t.Helper()
		d := harness.Start(t, harness.Options{App: true, Workers: 3, Threads: 4})
		isolate(t, d, 1, 2, 3)
		return d
	}

	t.Run("QUIT lets them finish", func(t *testing.T) {
		t.Parallel()
		d := begin(t)
		d.Signal(quit)
		d.AwaitStatus("draining")
		d.Open()
		require.Zero(t, d.Exit())
		require.Len(t, d.Noted("ran"), 3)
		require.Empty(t, d.Residue())
	})

	t.Run("USR1 kills their jobs, and work goes on", func(t *testing.T) {
		t.Parallel()
		d := begin(t)
		d.Signal(usr1)
		wereKilled(t, d.AwaitFailures(3))
		d.Push("mail", "Count", 4)
		d.AwaitNoted("ran", 1)
		proctest.Await(t, patience, func() bool { return len(suspectProcesses(d)) == 0 }, "the end of their processes")
		d.Signal(quit)
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
	})

	t.Run("TERM ends them at once", func(t *testing.T) {
		t.Parallel()
		d := begin(t)
		d.Signal(term)
		require.Zero(t, d.Exit())
		wereKilled(t, d.Failures())
		require.Empty(t, d.Residue())
	})

	t.Run("HUP leaves them alone, USR2 starts none", func(t *testing.T) {
		t.Parallel()
		d := begin(t)
		var pids []int
		for _, p := range suspectProcesses(d) {
			pids = append(pids, p.PID)
		}
		old := d.WorkerPIDs()
		d.Signal(hup)
		awaitOthers(t, d, slices.DeleteFunc(old, func(pid int) bool { return slices.Contains(pids, pid) }), 6)
		for _, pid := range pids {
			require.True(t, proctest.Alive(pid))
		}
		d.Signal(usr2)
		d.AwaitStatus("paused")
		require.NoError(t, unix.Kill(pids[0], unix.SIGKILL))
		proctest.Await(t, patience, func() bool { s := d.Snapshot(); return s.InFlight == 2 && s.Queued == 1 }, "its recovery")
		require.Len(t, suspectProcesses(d), 2)
		d.Signal(cont)
		proctest.Await(t, patience, func() bool { return len(suspectProcesses(d)) == 3 }, "another process")
		d.Open()
		d.AwaitNoted("ran", 3)
		d.AwaitProcessed(3, patience)
		require.Empty(t, d.Failures())
	})
}

// TestSuspectsOfADeadMaster kills a master while suspects run and wait: the next one continues
// with them.
func TestSuspectsOfADeadMaster(t *testing.T) {
	t.Parallel()
	o := harness.Options{App: true, Threads: 4}
	d := harness.Start(t, o)
	d.Push("mail", "Gate", 1, 2, 3)
	d.AwaitNoted("started", 3)
	require.NoError(t, unix.Kill(holder(t, d, 1), unix.SIGKILL))
	// At first one suspect; the next one waits for its end only so long.
	apart := func() bool {
		s := d.Snapshot()
		return len(suspectProcesses(d)) > 0 && s.InFlight > 0 && s.InFlight+s.Queued == 3
	}
	proctest.Await(t, patience, apart, "one that runs alone")
	d.KillTree()
	o.Namespace = d.Space
	d.ForgetMasters()
	d = harness.Start(t, o)
	proctest.Await(t, patience, apart, "one that runs alone again")
	d.Open()
	d.AwaitNoted("ran", 3)
	d.AwaitProcessed(3, patience)
	require.Empty(t, d.Failures())
	d.ForgetMasters()
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

// TestDeathsOfTheTree checks that a long job is not blamed when its whole daemon is killed
// again and again.
func TestDeathsOfTheTree(t *testing.T) {
	t.Parallel()
	o := harness.Options{App: true, Threads: 4}
	d := harness.Start(t, o)
	d.Push("mail", "Gate", 1, 2)
	for n := 1; n <= 5; n++ {
		proctest.Await(t, patience, func() bool {
			started := d.Noted("started")
			return started["1"] == strconv.Itoa(n) && started["2"] == strconv.Itoa(n)
		}, "run %d", n)
		require.Empty(t, suspectProcesses(d), "no job is suspected")
		d.KillTree()
		o.Namespace = d.Space
		d.ForgetMasters()
		d = harness.Start(t, o)
	}
	d.Open()
	d.AwaitNoted("ran", 2)
	d.AwaitProcessed(2, patience)
	require.Empty(t, d.Failures())
}

// TestUntilEmptyWithSuspects checks that a daemon that works until nothing is left also works
// suspects.
func TestUntilEmptyWithSuspects(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{App: true, Threads: 4})
	s.Push("mail", "Gate", 1, 2, 3)
	s.AwaitNoted("started", 3)
	s.Signal(usr2)
	s.AwaitStatus("paused")
	require.NoError(t, unix.Kill(holder(t, s, 1), unix.SIGKILL))
	proctest.Await(t, patience, func() bool { return s.Snapshot().Queued == 3 }, "the recovery")
	s.Signal(quit)
	require.Zero(t, s.Exit())
	s.Open()
	last := harness.Start(t, harness.Options{App: true, Threads: 4, Namespace: s.Space, Args: []string{"--until-empty"}, Unready: true})
	require.Zero(t, last.Exit())
	require.Equal(t, harness.Snapshot{Processed: 3}, last.Snapshot())
	require.Len(t, last.Noted("ran"), 3)
	require.Empty(t, last.Residue())
}

// TestSuspectsAreShown checks the output about suspects.
func TestSuspectsAreShown(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 4})
	d.Push("mail", "Gate", 1, 2, 3)
	d.AwaitNoted("started", 3)
	require.NoError(t, unix.Kill(holder(t, d, 1), unix.SIGKILL))
	proctest.Await(t, patience, func() bool { return len(suspectProcesses(d)) > 0 && d.Snapshot().InFlight > 0 }, "one that runs alone")
	proctest.Await(t, patience, func() bool { return strings.Contains(d.Status(), " apart") }, "the status")

	out, _, code := d.Run("queues", "-o", "json", "--config", d.ConfigFile)
	require.Zero(t, code)
	var queues struct {
		Items []struct {
			Queue          string
			Size, Suspects int
			Busy           int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &queues))
	// The next suspects begin after some seconds.
	require.Equal(t, 3, queues.Items[0].Suspects+queues.Items[0].Busy, out)
	require.Positive(t, queues.Items[0].Busy)
	require.Zero(t, queues.Items[0].Size)
	out, _, code = d.Run("workers", "show", "--config", d.ConfigFile)
	require.Zero(t, code)
	require.Regexp(t, `(?m)^suspect \d+  running|(?m)^suspect \d+  retiring`, out)
	d.Open()
	d.AwaitProcessed(3, patience)
}

// TestDeathsFromOutside checks that a job whose whole daemon dies each time is not blamed, but
// is not repeated for ever: it runs at most four times max_deaths times.
func TestDeathsFromOutside(t *testing.T) {
	t.Parallel()
	const maxDeaths, most = 2, 8
	o := harness.Options{App: true, Config: fmt.Sprintf("max_deaths: %d\n", maxDeaths)}
	d := harness.Start(t, o)
	d.Push("mail", "Gate", 1)
	for run := 1; ; run++ {
		proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == strconv.Itoa(run) }, "run %d", run)
		d.KillTree()
		d.ForgetMasters()
		d = successor(t, d, o)
		if run == most {
			break
		}
		require.Empty(t, d.Failures())
	}
	failure := d.AwaitFailures(1)[0]
	require.Contains(t, failure.Error, "death 8 of any cause, and the most are 8 (4 times max_deaths)")
	require.Equal(t, "8", d.Noted("started")["1"])
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}
