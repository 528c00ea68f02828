package system_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// stuckIn starts a daemon with one job of a class in hand.
func stuckIn(t *testing.T, class string, o harness.Options) (*harness.Daemon, *watcher) {
	t.Helper()
	o.App, o.Config = true, stuckCommands+o.Config
	d := harness.Start(t, o)
	d.PushRaw("mail", fmt.Sprintf(`{"class":%q,"args":[1],"id":"the-job"}`, class))
	w, _ := awaitLock(t, d)
	i := slices.IndexFunc(stuckCodes, func(c stuckCode) bool { return c.class == class })
	awaitStuck(t, d, stuckCodes[i])
	w.command = stuckCodes[i].processes > 0
	if w.command {
		w.code = jobProcesses(d)
	} else if stuckCodes[i].stubborn {
		w.code = d.Workers()
	}
	w.began = time.Now()
	return d, w
}

// TestKillAtABadMoment kills jobs while something else happens.
func TestKillAtABadMoment(t *testing.T) {
	t.Parallel()
	short := harness.Options{Env: []string{"RESQUE_TERM_TIMEOUT=" + killGrace.String()}}

	for _, class := range []string{"Family", "Blocked"} {
		t.Run(class+" while redis is away", func(t *testing.T) {
			t.Parallel()
			o := short
			if class == "Family" {
				o.Env = nil
			}
			o.Redis = redistest.Start(t, durable)
			d, w := stuckIn(t, class, o)
			o.Redis.Hang()
			d.Signal(usr1)
			proctest.Await(t, patience, func() bool { return len(w.living(true)) == 0 }, "the end of the code")
			o.Redis.Resume()
			w.watch()
			d.Push("mail", "Count", 2)
			d.AwaitNoted("ran", 1)
			d.AwaitProcessed(2, patience)
			wasKilled(t, d.Failures())
			if class == "Blocked" {
				require.Equal(t, "1", d.Noted("started")["1"])
			}
			require.Equal(t, harness.Snapshot{Processed: 2, Failed: 1}, d.Snapshot())
		})
	}

	t.Run("several at once make one record", func(t *testing.T) {
		t.Parallel()
		d, w := stuckIn(t, "Blocked", short)
		answers := make(chan kill, 2)
		for range 2 {
			go func() { answers <- askKill(d, "the-job", killGrace.String()) }()
		}
		d.AwaitLog("told to kill a job")
		d.Signal(usr1)
		d.Signal(usr1)
		w.watch()
		for range 2 {
			require.Equal(t, kill{ID: "the-job", Killed: true, How: "process_recycled"}, <-answers)
		}
		d.Push("mail", "Count", 2)
		d.AwaitNoted("ran", 1)
		wasKilled(t, d.Failures())
	})

	t.Run("during a drain, which then ends", func(t *testing.T) {
		t.Parallel()
		d, w := stuckIn(t, "Family", harness.Options{})
		d.Push("mail", "Count", 2)
		d.Signal(quit)
		awaitState(t, d, "draining")
		require.Equal(t, kill{ID: "the-job", Killed: true, How: "cancelled"}, askKill(d, "the-job", longGrace.String()))
		w.watch()
		require.Zero(t, d.Exit())
		wasKilled(t, d.Failures())
		require.Equal(t, harness.Snapshot{Queued: 1, Processed: 1, Failed: 1}, d.Snapshot())
		require.Empty(t, d.Residue())
	})

	t.Run("during a pause, which goes on", func(t *testing.T) {
		t.Parallel()
		d, w := stuckIn(t, "Blocked", short)
		d.Signal(usr2)
		awaitState(t, d, "paused")
		d.Push("mail", "Count", 2)
		require.Equal(t, kill{ID: "the-job", Killed: true, How: "process_recycled"}, askKill(d, "the-job", killGrace.String()))
		w.watch()
		takesNothing(t, d)
		d.Signal(cont)
		d.AwaitNoted("ran", 1)
		wasKilled(t, d.Failures())
	})

	t.Run("USR1 reaches a process that retires and the one that takes its place", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true, Workers: 2, JobsPerFork: 1})
		d.Push("mail", "Gate", 1, 2, 3)
		d.AwaitNoted("started", 3)
		require.Len(t, d.Noted("started-by"), 3)
		d.Signal(usr1)
		for _, f := range d.AwaitFailures(3) {
			require.Equal(t, "Resque::DirtyExit", f.Exception)
		}
		d.Push("mail", "Count", 4)
		d.AwaitNoted("ran", 1)
		d.AwaitProcessed(4, patience)
		requireNoLocks(t, d)
		require.Len(t, d.Failures(), 3)
	})

	t.Run("a job that has ended or waits cannot be killed", func(t *testing.T) {
		t.Parallel()
		d := harness.Start(t, harness.Options{App: true})
		d.Push("mail", "Gate", 1)
		d.AwaitNoted("started", 1)
		d.PushRaw("mail", `{"class":"Count","args":[2],"id":"the-job"}`)
		_, errs, code := d.Run("jobs", "kill", "the-job")
		require.Equal(t, 4, code, errs)
		d.Open()
		d.AwaitNoted("ran", 2)
		d.AwaitProcessed(2, patience)
		_, errs, code = d.Run("jobs", "kill", "the-job")
		require.Equal(t, 4, code, errs)
		require.Empty(t, d.Failures())
	})
}

// TestKillFromElsewhere kills one job of many through Redis from another machine, which sees
// neither the daemon's processes nor its files.
func TestKillFromElsewhere(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{
		App: true, Threads: 3, Config: "max_deaths: 1\n", Env: []string{"RESQUE_TERM_TIMEOUT=2s"},
	})
	harness.Binary(t) // building it is not what is waited for
	elsewhere := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := harness.Elsewhere(ctx, t, d, args...)
		out, err := cmd.Output()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	d.PushRaw("mail", `{"class":"Stubborn","args":[1],"id":"deaf-one"}`, `{"class":"Gate","args":[2],"id":"neighbour"}`)
	d.AwaitNoted("started", 2)
	d.Push("mail", "Gate", 3)
	d.AwaitNoted("started", 3)

	require.Regexp(t, `(?m)^ID +CLASS +QUEUE +STATE +AGE +WORKER\n(.*\n)*deaf-one +Stubborn +mail +running +<?\d+s +\S+`, elsewhere("jobs"))
	var tree struct {
		Items []struct {
			State     string
			Processes []struct {
				PID       int
				State     string
				RSS       int64
				RecycleIn *int `json:"recycle_in"`
				Jobs      []struct{ ID string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(elsewhere("workers", "show", "-o", "json")), &tree))
	require.Len(t, tree.Items, 1)
	require.Len(t, tree.Items[0].Processes, 1)
	p := tree.Items[0].Processes[0]
	require.Equal(t, "running running", tree.Items[0].State+" "+p.State)
	require.Equal(t, d.WorkerPIDs()[0], p.PID)
	require.Positive(t, p.RSS)
	require.Len(t, p.Jobs, 3)
	require.Nil(t, p.RecycleIn, "there is no quota")

	// A job that reacts to cancellation ends alone.
	require.Equal(t, "cancelled neighbour Gate[2]\n", elsewhere("jobs", "kill", "neighbour"))
	// A job that ignores it is ended with its process. The neighbour, which does not finish
	// within resque_term_timeout and must not run twice, is counted as lost.
	require.Equal(t, "killed deaf-one Stubborn[1] with its process; siblings lost: 1\n",
		elsewhere("jobs", "kill", "deaf-one", "--force-after", "100ms"))
	require.Len(t, d.Failures(), 3)
	d.Push("mail", "Count", 4)
	d.AwaitNoted("ran", 1)
	require.Equal(t, map[string]string{"1": "1", "2": "1", "3": "1"}, d.Noted("started"))
}
