package system_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// busy returns a daemon in the middle of its work: thousands of jobs wait, hundreds are done.
func busy(t *testing.T, jobs int, env ...string) *harness.Daemon {
	t.Helper()
	o := fleet
	o.App, o.Env = true, env
	d := harness.Start(t, o)
	d.Push("mail", "Count", harness.Range(1, jobs)...)
	d.AwaitNoted("ran", 300)
	return d
}

// onceEach requires that every job that ran did so once and that the totals agree.
func onceEach(t *testing.T, d *harness.Daemon, jobs int) (ran int) {
	t.Helper()
	noted := d.Noted("ran")
	for id, times := range noted {
		require.Equal(t, "1", times, "job %s ran %s times", id, times)
	}
	s := d.Snapshot()
	require.Equal(t, int64(jobs), s.Jobs(), "%+v", s)
	require.Equal(t, int64(len(noted)), s.Processed)
	return len(noted)
}

// inTheMiddle repeats a test with twice as many jobs while all of them were done before it could
// interrupt them.
func inTheMiddle(t *testing.T, test func(jobs int) (met bool)) {
	t.Helper()
	for jobs, tries := harness.Load(), 0; !test(jobs); jobs, tries = 2*jobs, tries+1 {
		require.Less(t, tries, 5, "it always comes too late to show anything")
	}
}

func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	inTheMiddle(t, func(jobs int) bool { return drainsUnderLoad(t, jobs) })
}

func drainsUnderLoad(t *testing.T, jobs int) (met bool) {
	t.Helper()
	d := busy(t, jobs)
	stop := d.Conserve(int64(jobs))
	d.Signal(quit)
	require.Zero(t, d.Exit())
	stop()
	require.Empty(t, d.Residue())
	if onceEach(t, d, jobs) == jobs {
		return false
	}

	// The next daemon works the rest, and no job twice.
	o := fleet
	o.App, o.Namespace, o.Args = true, d.Space, []string{"--until-empty"}
	next := harness.Start(t, o)
	require.True(t, next.AwaitEnd(2*time.Minute))
	require.Zero(t, next.Exit())
	require.Equal(t, jobs, onceEach(t, next, jobs))
	require.Empty(t, next.Residue())
	return true
}

func TestPauseUnderLoad(t *testing.T) {
	t.Parallel()
	inTheMiddle(t, func(jobs int) bool { return pausesUnderLoad(t, jobs) })
}

func pausesUnderLoad(t *testing.T, jobs int) (met bool) {
	t.Helper()
	d := busy(t, jobs)
	d.Signal(usr2)
	d.AwaitStatus("paused")
	// Jobs in hand may still finish, and a worker process may take one more job before it
	// learns of the pause. After that nothing changes.
	var before harness.Snapshot
	still := func() bool {
		before = d.Snapshot()
		return before.InFlight == 0 &&
			!proctest.Within(500*time.Millisecond, func() bool { return d.Snapshot() != before })
	}
	proctest.Await(t, patience, still, "an end of all movement")
	d.Signal(cont)
	d.AwaitProcessed(int64(jobs), 2*time.Minute)
	require.Equal(t, jobs, onceEach(t, d, jobs))
	return before.Queued > 0
}

func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	jobs := harness.Load()
	d := busy(t, jobs, shortKill)
	// Some jobs of every kind that does not end by itself.
	d.PushRaw("high", `{"class":"Gate","args":[100001]}`, `{"class":"Stubborn","args":[100002]}`, `{"class":"Busy","args":[100003]}`)
	d.AwaitNoted("started", 3)
	d.Signal(term)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
	s := d.Snapshot()
	require.Equal(t, int64(jobs+3), s.Jobs(), "%+v", s)
	for _, id := range []string{"100001", "100002", "100003"} {
		failed := 0
		for _, f := range d.Failures() {
			if string(f.Payload) != "" && containsArg(f, id) {
				failed++
			}
		}
		require.Equal(t, 1, failed, "failures of job %s", id)
	}
}

func containsArg(f harness.Failure, id string) bool {
	return string(f.Payload) == `{"class":"Gate","args":[`+id+`]}` ||
		string(f.Payload) == `{"class":"Stubborn","args":[`+id+`]}` ||
		string(f.Payload) == `{"class":"Busy","args":[`+id+`]}`
}

// TestReloadUnderLoad checks that a reload under load loses no job, kills nothing and keeps the
// master.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	jobs := harness.Load()
	d := busy(t, jobs)
	stop := d.Conserve(int64(jobs))
	for range 3 {
		old := d.WorkerPIDs()
		d.Signal(hup)
		proctest.Await(t, patience, func() bool {
			return !slices.ContainsFunc(old, proctest.Alive)
		}, "the end of %v", old)
	}
	d.AwaitProcessed(int64(jobs), 2*time.Minute)
	stop()
	require.Equal(t, jobs, onceEach(t, d, jobs))
	require.Empty(t, d.Failures())
	require.True(t, proctest.Alive(d.PID))
}

func TestBadReloadKeepsTheOldConfiguration(t *testing.T) {
	t.Parallel()
	d := running(t)
	old := d.WorkerPIDs()
	d.Configure("worker_cuont: 7\n")
	d.Signal(hup)
	d.AwaitLog("worker_count")
	require.Equal(t, old, d.WorkerPIDs())
	bothRun(t, d)
}

// TestWorkerProcessIsKilled checks that killing worker processes loses no job.
func TestWorkerProcessIsKilled(t *testing.T) {
	t.Parallel()
	jobs := harness.Load()
	// The same job may be killed three times by chance, which must not fail it.
	d := busy(t, jobs, "RESQUED_MAX_DEATHS=1000")
	stop := d.Conserve(int64(jobs))
	const kills = 10
	for range kills {
		pids := d.WorkerPIDs()
		if len(pids) == 0 {
			continue
		}
		_ = unix.Kill(pids[0], unix.SIGKILL)
		proctest.Await(t, patience, func() bool { return !proctest.Alive(pids[0]) }, "the end of %d", pids[0])
	}
	d.AwaitProcessed(int64(jobs), 2*time.Minute)
	stop()
	// A job whose process died may have run without having reported it.
	noted := d.Noted("ran")
	require.Len(t, noted, jobs)
	twice := 0
	for id, times := range noted {
		n, err := strconv.Atoi(times)
		require.NoError(t, err)
		require.LessOrEqual(t, n, 1+kills, "job %s", id)
		if n > 1 {
			twice++
		}
	}
	require.LessOrEqual(t, twice, kills*fleet.Threads, "only jobs in hand may run again")
	require.Empty(t, d.Failures())
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

// TestMasterIsKilled kills the master with jobs in hand: they are done, and none is lost.
func TestMasterIsKilled(t *testing.T) {
	t.Parallel()
	jobs := harness.Jobs(5_000)
	d := busy(t, jobs)
	require.NoError(t, unix.Kill(d.PID, unix.SIGKILL))
	require.Equal(t, -int(unix.SIGKILL), d.Exit())
	proctest.Await(t, patience, func() bool { return len(d.Processes()) == 0 }, "the end of the worker processes")

	o := fleet
	o.App, o.Namespace = true, d.Space
	next := harness.Start(t, o)
	next.ForgetMasters()
	next.AwaitProcessed(int64(jobs), 2*time.Minute)
	require.Len(t, next.Noted("ran"), jobs)
	require.Empty(t, next.Failures())
	next.Signal(quit)
	require.Zero(t, next.Exit())
	require.Empty(t, next.Residue())
}
