package system_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/test/system/harness"
)

// rubyLong are long jobs in Ruby. Numbers notes each number with its slice's fence; Ledger notes
// the beginning and end of a critical unit.
const rubyLong = `
class Numbers
  extend Resqued::LongJob
  @queue = :long
  def self.long_job_perform(run, n, *)
    run.work_once(:begin) { note("once", run.fence) }
    run.work_each(:count, (1..n).to_a) do |i|
      note("unit", i, run.fence, Process.pid)
      sleep(0.02)
      run.progress(i, n, message: "number #{i}")
    end
    note("end", run.uuid)
  end
end

LongJob = Resqued::LongJob::Base
class Ledger < LongJob
  @queue = :long
  def self.long_job_perform(run, name)
    run.work_each(:entries, (1..5).to_a) do |i|
      run.critical_work_unit("ledger") do
        note("ledger", "in", name, i)
        sleep(0.02)
        note("ledger", "out", name, i)
      end
    end
  end
end

class Stubborn
  extend Resqued::LongJob
  @queue = :long
  def self.long_job_perform(run, _)
    run.work_unit do
      note("stubborn", run.slice, Process.pid)
      begin
        gate("go")
      ensure
        note("ended", run.slice)
      end
    end
  end
end

class Producer
  def self.perform(_)
    LongJob.enqueue(Numbers, 7, "enqueued")
    Resqued::LongJob::Tick.perform("Numbers")
  end
end

LongJob.job :Numbers, interval: 3600, each: -> { [1, 2, 3] }, args: ["tick"], max_backlog: 2
`

// startRubyLong starts a daemon whose runner performs them. Their command line is a script that
// calls the daemon's.
func startRubyLong(t *testing.T, name, slice string, o harness.Options) (*rubyApp, *harness.Daemon, harness.Options) {
	t.Helper()
	a := newRubyApp(t, name, rubyLong)
	script := filepath.Join(a.d, "resqued.sh")
	o.Config = a.config("    kill_after: 2s\n    env: {RESQUED_COMMAND: " + strconv.Quote(script) + "}\n")
	for _, class := range []string{"Numbers", "Ledger", "Stubborn"} {
		o.Config += fmt.Sprintf("  %s: {runner: %s, queue: long, long_job: {requeue_queue: later, slice: %s, max_deaths: 50, retry_after: 1s}}\n", class, name, slice)
	}
	d := harness.Start(t, o)
	o.Namespace = d.Space
	text := "#!/bin/sh\nexport REDIS_URL=" + d.URL + "\nexec " + harness.Binary(t) + " \"$@\" --config " + d.ConfigFile + "\n"
	require.NoError(t, os.WriteFile(script, []byte(text), 0o700)) //nolint:gosec // it is to be executed
	return a, d, o
}

// numbers checks that Numbers has noted those from 1 to n in order, by one slice at a time, and
// returns how many were noted twice.
func (a *rubyApp) numbers(n int) (repeated int) {
	a.t.Helper()
	var lines []string
	for _, words := range a.notes("unit") {
		lines = append(lines, words[1]+" "+words[2])
	}
	return checkUnits(a.t, lines, n)
}

// TestALongJobInRubySurvivesEverything deploys the daemon repeatedly, kills worker processes and
// runners, and pauses the run, while a long job of Ruby runs. No number is left out, and one is
// noted twice only if its process was killed with it.
func TestALongJobInRubySurvivesEverything(t *testing.T) {
	t.Parallel()
	numbers := 200
	if harness.Full() {
		numbers = 1000
	}
	a, d, _ := startRubyLong(t, "longruby", "300ms", harness.Options{Workers: 2, JobsPerFork: 20})
	c := longClient(t, d)
	res, err := c.EnqueueUnique(t.Context(), "Numbers", []any{numbers}, longjob.Queue("long"))
	require.NoError(t, err)

	troubled, peace := context.WithCancel(t.Context())
	defer peace()
	kills := make(chan int)
	paused := 0
	go func() {
		killed := 0
		defer func() { kills <- killed }()
		random := rand.New(rand.NewPCG(5, 6))
		for n := 1; ; n++ {
			select {
			case <-troubled.Done():
				return
			case <-time.After(time.Duration(500+random.IntN(1000)) * time.Millisecond):
			}
			switch n % 4 {
			case 0:
				_ = syscall.Kill(d.PID, syscall.SIGHUP)
			case 1:
				if pids := kinOf("longruby").runners; len(pids) > 0 {
					killed++
					_ = syscall.Kill(pids[random.IntN(len(pids))], syscall.SIGKILL)
				}
			case 2:
				if pids := d.WorkerPIDs(); len(pids) > 0 {
					killed++
					_ = syscall.Kill(pids[random.IntN(len(pids))], syscall.SIGKILL)
				}
			default:
				if err := c.Pause(t.Context(), res.UUID); err == nil || strings.Contains(err.Error(), "still running") {
					paused++
				}
				_ = c.Resume(t.Context(), res.UUID)
			}
		}
	}()
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run, err := c.Wait(limit, res.UUID)
	peace()
	killed := <-kills
	require.NoError(t, err)
	require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
	require.Empty(t, d.Failures())
	require.Equal(t, fmt.Sprintf("number %d", numbers), run.Message)
	require.Greater(t, run.Slices, 1)
	repeated := a.numbers(numbers)
	require.LessOrEqual(t, repeated, killed)
	require.LessOrEqual(t, len(a.notes("once")), 1+killed)
	t.Logf("%d numbers in %d slices; %d processes killed, %d pauses, %d numbers repeated", numbers, run.Slices, killed, paused, repeated)
	a.ended(d)
}

// TestALongJobInRubyStops pauses, drains, supersedes and kills long slices of Ruby: each ends
// with its unit, and nothing is lost or done twice.
func TestALongJobInRubyStops(t *testing.T) {
	t.Parallel()
	a, d, o := startRubyLong(t, "longstop", "1h", harness.Options{Workers: 1, Threads: 2})
	c := longClient(t, d)
	res, err := c.EnqueueUnique(t.Context(), "Numbers", []any{20000}, longjob.Queue("long"))
	require.NoError(t, err)
	status := func(uuid string) longjob.Status {
		run, err := c.Get(t.Context(), uuid)
		require.NoError(t, err)
		return run.Status
	}

	// It stays paused through a restart, and another enqueue finds it.
	a.await("unit", 5)
	_, _, code := d.Run("longjobs", "pause", res.UUID)
	require.Zero(t, code)
	proctest.Await(t, patience, func() bool { return status(res.UUID) == longjob.StatusPaused }, "the end of its slice")
	paused := len(a.notes("unit"))
	require.Zero(t, d.Client.Exists(t.Context(), d.Key("queue:long"), d.Key("queue:later")).Val(), "it is in no queue")
	d.Signal(quit)
	require.Zero(t, d.Exit(), d.Log())
	d = harness.Start(t, o)
	again, err := c.EnqueueUnique(t.Context(), "Numbers", []any{20000}, longjob.Queue("long"))
	require.NoError(t, err)
	require.Equal(t, longjob.Result{UUID: res.UUID, Outcome: longjob.OutcomeExisting}, again)
	require.Len(t, a.notes("unit"), paused)
	out, _, code := d.Run("longjobs", "ls", "--status", "paused", "-o", "name")
	require.Zero(t, code)
	require.Equal(t, res.UUID, strings.TrimSpace(out))
	_, _, code = d.Run("longjobs", "resume", res.UUID[:8])
	require.Zero(t, code)
	a.await("unit", paused+5)

	// Another run replaces it, and begins when its code has ended.
	stubborn, err := c.Enqueue(t.Context(), "Stubborn", []any{1}, longjob.Queue("long"))
	require.NoError(t, err)
	a.await("stubborn", 1)
	second, err := c.Enqueue(t.Context(), "Stubborn", []any{1}, longjob.Queue("long"))
	require.NoError(t, err)
	// The old one is told to stop, which ends its unit; only then the new one begins.
	a.await("stubborn", 2)
	require.Len(t, a.notes("ended"), 1)
	require.Equal(t, longjob.StatusSuperseded, status(stubborn.UUID))

	// A kill of the job has the same slice run again.
	pid := a.notes("stubborn")[1][2]
	out, _, code = d.Run("jobs", "-o", "json")
	require.Zero(t, code)
	var jobs struct{ Items []struct{ ID, Class string } }
	require.NoError(t, json.Unmarshal([]byte(out), &jobs))
	for _, job := range jobs.Items {
		if job.Class == "Stubborn" {
			_, said, code := d.Run("jobs", "kill", job.ID)
			require.Zero(t, code, said)
		}
	}
	killed := a.await("stubborn", 3)
	require.NotEqual(t, pid, killed[2][2], "what it has interrupted has left")
	require.Equal(t, killed[1][1], killed[2][1], "the same slice")
	a.open("go")
	run, err := c.Wait(t.Context(), second.UUID)
	require.NoError(t, err)
	require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)

	require.NoError(t, ignoreEnding(c.Cancel(t.Context(), res.UUID)))
	a.numbers(len(a.notes("unit")))
	require.Empty(t, d.Failures())
	a.ended(d)
}

func ignoreEnding(err error) error {
	if err != nil && strings.Contains(err.Error(), "still running") {
		return nil
	}
	return err
}

// TestCriticalUnitsOfRuby: of runs that share a lock, at most one is within it.
func TestCriticalUnitsOfRuby(t *testing.T) {
	t.Parallel()
	a, d, _ := startRubyLong(t, "longledger", "15s", harness.Options{Workers: 2, Threads: 2})
	c := longClient(t, d)
	var uuids []string
	for _, name := range []string{"a", "b", "c"} {
		res, err := c.EnqueueUnique(t.Context(), "Ledger", []any{name}, longjob.Queue("long"))
		require.NoError(t, err)
		uuids = append(uuids, res.UUID)
	}
	for _, uuid := range uuids {
		run, err := c.Wait(t.Context(), uuid)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
	}
	notes := a.notes("ledger")
	require.Len(t, notes, 30)
	for i := 0; i < len(notes); i += 2 {
		require.Equal(t, "in", notes[i][1])
		require.Equal(t, append([]string{"ledger", "out"}, notes[i][2:]...), notes[i+1])
	}
	require.Zero(t, d.Client.HLen(t.Context(), d.Key("resqued:longjob:locks")).Val())
	a.ended(d)
}

// TestARecurringLongJobOfRuby has a job of Ruby see to a tick.
func TestARecurringLongJobOfRuby(t *testing.T) {
	t.Parallel()
	a, d, _ := startRubyLong(t, "longtick", "15s", harness.Options{})
	d.Push("other", "Producer", 1)
	c := longClient(t, d)
	proctest.Await(t, patience, func() bool {
		runs, err := c.List(t.Context(), longjob.Filter{Class: "Numbers"})
		require.NoError(t, err)
		for _, run := range runs {
			require.Empty(t, run.Error)
		}
		require.Empty(t, d.Failures())
		return len(a.notes("end")) >= 2
	}, "both runs")
	out, _, code := d.Run("longjobs", "recurring", "-o", "name")
	require.Zero(t, code)
	require.Equal(t, "Numbers", strings.TrimSpace(out))
	runs, err := c.List(t.Context(), longjob.Filter{Class: "Numbers"})
	require.NoError(t, err)
	var args []string
	for _, run := range runs {
		args = append(args, run.Args.String())
	}
	// A tick starts one of the three, the first soon; the other run is the one of enqueue.
	require.Len(t, runs, 2, "%v", args)
	require.Contains(t, args, `[7,"enqueued"]`)
	require.Empty(t, d.Failures())
	a.ended(d)
}
