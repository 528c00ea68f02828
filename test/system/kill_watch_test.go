package system_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// A watcher checks from outside that a kill happens in three steps: the code is gone, the job
// is recorded, its lock is free. It reads Redis first and /proc after that, so that code seen
// alive was alive when Redis reported the job as over.
type watcher struct {
	t *testing.T
	d *harness.Daemon
	// lock is the job's lock, and holder its value while the job holds it.
	lock, holder string
	// code lists the processes that have to end: those of the command, or the worker process of
	// a handler in Go. If nil, the handler itself notes that it stops.
	code []proctest.Process
	// command requires that only the master and worker processes are left.
	command bool
	// began is when the job was told to stop; zero means when told returns true.
	began time.Time
	told  func() bool
}

// sight is the state in Redis at one instant.
type sight struct {
	free     bool  // the job does not have its lock
	recorded int64 // failures
	stopped  bool  // the handler has come to its end
}

var lookScript = redis.NewScript(`
return {redis.call('GET', KEYS[1]) or '', redis.call('LLEN', KEYS[2]), redis.call('HLEN', KEYS[3])}`)

// lookPause is the pause between two looks. It leaves the processor to the watched processes.
const lookPause = 300 * time.Microsecond

func (w *watcher) look() sight {
	w.t.Helper()
	d := w.d
	reply, err := lookScript.Run(context.Background(), d.Client, []string{d.Key(w.lock), d.Key("failed"), d.Key("test:stopped")}).Slice()
	require.NoError(w.t, err)
	return sight{free: reply[0] != w.holder, recorded: reply[1].(int64), stopped: reply[2].(int64) > 0}
}

// awaitLock waits until the job has its lock and returns when that was seen. The watcher is nil
// if the job has ended before.
func awaitLock(t *testing.T, d *harness.Daemon) (w *watcher, at time.Time) {
	t.Helper()
	w = &watcher{t: t, d: d}
	for deadline := time.Now().Add(patience); ; <-time.After(lookPause) {
		held := lockValues(t, d)
		at = time.Now()
		for w.lock, w.holder = range held {
			return w, at
		}
		if d.Client.LLen(t.Context(), d.Key("failed")).Val() > 0 {
			return nil, at
		}
		require.True(t, at.Before(deadline), "no job has got its lock")
	}
}

// living returns those of the code's processes that are alive.
func (w *watcher) living(thorough bool) []string {
	var alive []string
	for _, p := range w.code {
		if lives(p) {
			alive = append(alive, p.String())
		}
	}
	if thorough && w.command {
		for _, p := range jobProcesses(w.d) {
			alive = append(alive, p.String())
		}
	}
	return alive
}

// watch waits until the lock is free and returns the time since the job was told to stop.
func (w *watcher) watch() time.Duration {
	w.t.Helper()
	recorded, started := false, time.Now()
	for ; ; <-time.After(lookPause) {
		if w.began.IsZero() && w.told() {
			w.began = time.Now()
		}
		seen, at := w.look(), time.Now()
		if seen.recorded > 0 || seen.free {
			alive := w.living(!recorded || seen.free)
			require.Empty(w.t, alive, "the code lives, and yet %+v", seen)
			if w.code == nil {
				require.True(w.t, seen.stopped, "the code has not ended, and yet %+v", seen)
			}
			recorded = true
		}
		if seen.free {
			require.Equal(w.t, int64(1), seen.recorded, "the lock is free, and the job is not recorded")
			if w.began.IsZero() {
				return 0 // it ended before its process could be seen to have been told
			}
			return at.Sub(w.began)
		}
		require.Less(w.t, at.Sub(started), patience, "the job has its lock for ever: %+v, alive: %v", seen, w.living(true))
	}
}

// lives reports whether any thread of a process still runs. A new process with the same pid
// does not count.
func lives(p proctest.Process) bool {
	now, ok := proctest.Look(p.PID)
	if !ok || now.Start != p.Start || now.State == "X" {
		return false
	}
	return now.State != "Z" || threads(p.PID) > 1
}

// threads returns the number of a process's threads. The first thread may have ended before the
// others.
func threads(pid int) int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return len(list)
}

// jobProcesses returns the living processes of commands.
func jobProcesses(d *harness.Daemon) []proctest.Process {
	return slices.DeleteFunc(d.Processes(), func(p proctest.Process) bool { return p.Env("RESQUED_JOB") == "" })
}

// figures collects how long the kills of a matrix took, by code and by way.
type figures map[string]map[string]time.Duration

// write logs a line per code with the median and the maximum.
func (f figures) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "from the kill to the free lock, in ms; the grace is %d, kill_after 150\n%-24s", killGrace.Milliseconds(), "")
	for _, way := range killWays {
		fmt.Fprintf(&b, "%13s", way.name)
	}
	fmt.Fprintf(&b, "%13s%13s\n", "median", "worst")
	for _, c := range stuckCodes {
		fmt.Fprintf(&b, "%-24s", c.name)
		var all []time.Duration
		for _, way := range killWays {
			took, ok := f[c.name][way.name]
			if !ok {
				fmt.Fprintf(&b, "%13s", "-")
				continue
			}
			all = append(all, took)
			fmt.Fprintf(&b, "%13.0f", took.Seconds()*1000)
		}
		if slices.Sort(all); len(all) > 0 {
			fmt.Fprintf(&b, "%13.0f%13.0f", all[len(all)/2].Seconds()*1000, all[len(all)-1].Seconds()*1000)
		}
		b.WriteString("\n")
	}
	t.Log(b.String())
}
