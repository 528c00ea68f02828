package system_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// kill is the output of "jobs kill" for one job.
type kill struct {
	ID           string `json:"id"`
	Killed       bool   `json:"killed"`
	How          string `json:"how"`
	SiblingsLost int    `json:"siblings_lost"`
	Requeued     bool   `json:"requeued"`
}

// runningJob is a job in the output of "jobs".
type runningJob struct {
	ID     string `json:"id"`
	Class  string `json:"class"`
	Args   []int  `json:"args"`
	State  string `json:"state"`
	Worker string `json:"worker"`
}

// jobsOf returns the running jobs.
func jobsOf(t *testing.T, d *harness.Daemon, args ...string) []runningJob {
	t.Helper()
	out, errs, code := d.Run(append([]string{"jobs", "-o", "json"}, args...)...)
	require.Zero(t, code, errs)
	var list struct {
		Items []runningJob `json:"items"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	return list.Items
}

// jobOf returns the running job whose first argument is id.
func jobOf(t *testing.T, d *harness.Daemon, id int) runningJob {
	t.Helper()
	for _, job := range jobsOf(t, d) {
		if len(job.Args) > 0 && job.Args[0] == id {
			return job
		}
	}
	require.Fail(t, "no such job", "%d of %v", id, jobsOf(t, d))
	return runningJob{}
}

// killJob kills a job and returns the output.
func killJob(t *testing.T, d *harness.Daemon, name string, args ...string) kill {
	t.Helper()
	began := time.Now()
	out, errs, code := d.Run(append([]string{"jobs", "kill", name, "-o", "json"}, args...)...)
	require.Zero(t, code, errs)
	var k kill
	require.NoError(t, json.Unmarshal([]byte(out), &k))
	t.Logf("%s after %s", strings.TrimSpace(out), time.Since(began))
	return k
}

func pidNoted(t *testing.T, d *harness.Daemon, id int) string {
	t.Helper()
	return d.Noted("pid")[strconv.Itoa(id)]
}

// TestKillOneJob kills one job of many by a request in Redis.
func TestKillOneJob(t *testing.T) {
	t.Parallel()

	t.Run("a handler that listens is cancelled, and nothing else happens", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Threads: 4})
		d.Push("mail", "Gate", 1, 2, 3, 4)
		d.AwaitNoted("started", 4)
		pids := d.WorkerPIDs()
		job := jobOf(t, d, 1)
		k := killJob(t, d, job.ID)
		require.Equal(t, kill{ID: job.ID, Killed: true, How: "cancelled"}, k)
		wasKilled(t, d.Failures())
		require.Len(t, jobsOf(t, d), 3)
		_, errs, code := d.Run("jobs", "kill", job.ID)
		require.Equal(t, 4, code, errs)
		d.Open()
		d.AwaitNoted("ran", 3)
		d.AwaitProcessed(4, patience)
		require.Equal(t, pids, d.WorkerPIDs())
		require.Len(t, d.Failures(), 1)
		requireNoLocks(t, d)
		d.Signal(quit)
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
	})

	t.Run("with a quota of one job the answer is not lost with the process", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, JobsPerFork: 1})
		d.Push("mail", "Gate", 1)
		d.AwaitNoted("started", 1)
		k := killJob(t, d, jobOf(t, d, 1).ID)
		require.Equal(t, "cancelled", k.How)
		wasKilled(t, d.Failures())
	})

	t.Run("it can go back to the tail of its queue", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		d.Push("mail", "Gate", 1, 2)
		d.AwaitNoted("started", 1)
		k := killJob(t, d, jobOf(t, d, 1).ID, "--requeue")
		require.Equal(t, "cancelled", k.How)
		require.True(t, k.Requeued)
		d.AwaitNoted("started", 2)
		d.Open()
		d.AwaitNoted("ran", 2)
		require.Equal(t, "2", d.Noted("started")["1"])
		require.Empty(t, d.Failures())
	})

	t.Run("one that ignores its context costs its process, whose other jobs finish first", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Threads: 3})
		d.PushRaw("mail", `{"class":"Stubborn","args":[1]}`, `{"class":"Sleep","args":[2,4000]}`, `{"class":"Sleep","args":[3,4000]}`)
		d.AwaitNoted("started", 3)
		old := pidNoted(t, d, 1)
		job := jobOf(t, d, 1)
		held := lockValues(t, d)
		k := killJob(t, d, job.ID, "--force-after", "500ms")
		require.Equal(t, kill{ID: job.ID, Killed: true, How: "process_recycled"}, k)
		require.Len(t, d.Noted("ran"), 2, "its neighbours")
		require.Equal(t, "1", d.Noted("started")["2"])
		wasKilled(t, d.Failures())
		awaitFree(t, d, held, unexpired)
		pid, err := strconv.Atoi(old)
		require.NoError(t, err)
		require.False(t, proctest.Alive(pid))
		d.Push("mail", "Count", 4)
		d.AwaitNoted("ran", 3)
		require.Len(t, d.Failures(), 1)
	})

	t.Run("a stubborn one can go back to its queue as well, without a death", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Config: "max_deaths: 1\n"})
		d.Push("mail", "Stubborn", 1)
		d.AwaitNoted("started", 1)
		k := killJob(t, d, jobOf(t, d, 1).ID, "--force-after", "100ms", "--requeue")
		require.Equal(t, "process_recycled", k.How)
		require.True(t, k.Requeued)
		proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second run")
		d.Open()
		d.AwaitNoted("ran", 1)
		require.Empty(t, d.Failures())
		require.Zero(t, d.Client.Exists(context.Background(), d.Key("resqued:deaths")).Val())
	})

	t.Run("a busy loop goes with its process", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		d.Push("mail", "Busy", 1)
		d.AwaitNoted("started", 1)
		k := killJob(t, d, jobOf(t, d, 1).ID, "--force-after", "500ms")
		require.Equal(t, "process_recycled", k.How)
		wasKilled(t, d.Failures())
	})

	t.Run("a request never hits the job that comes next", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		d.Push("mail", "Gate", 1)
		d.AwaitNoted("started", 1)
		first := jobOf(t, d, 1)
		d.Open()
		d.AwaitNoted("ran", 1)
		d.Shut()
		// An equal payload, on the same thread of the same process.
		d.Push("mail", "Gate", 1)
		proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second job")
		second := jobOf(t, d, 1)
		require.NotEqual(t, first.ID, second.ID)
		require.Equal(t, first.Worker, second.Worker)
		_, errs, code := d.Run("jobs", "kill", first.ID)
		require.Equal(t, 4, code, errs)
		// As if the kill of the first job had been requested when it was about to end.
		cut := strings.LastIndex(first.ID, "/")
		require.NoError(t, d.Client.HSet(context.Background(), d.Key("resqued:kills:"+first.ID[:cut]), first.ID[cut+1:], "0 0").Err())
		proctest.Await(t, patience, func() bool { return len(d.Keys("resqued:kills:*")) == 0 }, "the end of the request")
		require.Equal(t, second.ID, jobOf(t, d, 1).ID)
		require.Equal(t, "running", jobOf(t, d, 1).State)
		d.Open()
		d.AwaitProcessed(2, patience)
		require.Empty(t, d.Failures())
	})
}

// TestKillACommand checks that commands are killed with all their descendants and without
// ending their worker process.
func TestKillACommand(t *testing.T) {
	t.Parallel()
	const handlers = `
handlers:
  Tree:
    command: [sh, -c, 'sleep 1000 & setsid sleep 1001 & trap "" TERM; while :; do sleep 1; done']
    kill_after: 1h
  Short:
    command: [sh, -c, 'sleep 1000 & setsid sleep 1001 & trap "" TERM; while :; do sleep 1; done']
    timeout: 1s
    kill_after: 200ms
`
	sleeps := func(d *harness.Daemon) (found []proctest.Process) {
		for _, p := range d.Processes() {
			if strings.HasPrefix(p.Title, "sleep 100") {
				found = append(found, p)
			}
		}
		return found
	}

	t.Run("who asks", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{Config: handlers, Threads: 2, Env: []string{"RESQUE_TERM_TIMEOUT=600"}})
		d.PushRaw("mail", `{"class":"Tree","args":[1]}`, `{"class":"Tree","args":[2]}`)
		proctest.Await(t, patience, func() bool { return len(sleeps(d)) == 4 }, "the command's descendants")
		pids := d.WorkerPIDs()
		k := killJob(t, d, jobOf(t, d, 1).ID, "--force-after", longGrace.String())
		require.Equal(t, "cancelled", k.How)
		require.Len(t, sleeps(d), 2, "of the other job")
		require.Len(t, lockValues(t, d), 1)
		require.Equal(t, pids, d.WorkerPIDs(), "the grace was long enough for a KILL")
		wasKilled(t, d.Failures())
		require.Equal(t, "running", jobOf(t, d, 2).State)
	})

	t.Run("its timeout does the same", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{Config: handlers})
		pids := d.WorkerPIDs()
		d.PushRaw("mail", `{"class":"Short","args":[1]}`)
		failure := d.AwaitFailures(1)[0]
		require.Equal(t, "Resqued::Timeout", failure.Exception)
		require.Empty(t, sleeps(d))
		requireNoLocks(t, d)
		require.Equal(t, pids, d.WorkerPIDs())
	})
}
