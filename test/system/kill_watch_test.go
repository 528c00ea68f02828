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

	"github.com/resqued/resqued/internal/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// A kill is over in three steps: the code is gone, the job is recorded, its lock is
// free. A watcher looks from outside, all the time, whether that is the order: Redis
// first and /proc after that, so that code which is seen alive was alive when Redis
// said that it is over.
type watcher struct {
	t *testing.T
	d *harness.Daemon
	// lock is the lock of the job, and holder its value while the job has it.
	lock, holder string
	// code are the processes that have to be gone: those of the command, or the worker
	// process of a handler in Go. nil: the handler notes itself that it stops.
	code []proctest.Process
	// command: no process at all may be left beside master and worker processes.
	command bool
	// began is when the job was told to stop; zero: when told says so.
	began time.Time
	told  func() bool
}

// sight is what Redis says at one instant.
type sight struct {
	free     bool  // the job does not have its lock
	recorded int64 // failures
	stopped  bool  // the handler has come to its end
}

var lookScript = redis.NewScript(`
return {redis.call('GET', KEYS[1]) or '', redis.call('LLEN', KEYS[2]), redis.call('HLEN', KEYS[3])}`)

// lookPause is how long the watcher rests between two looks: long enough to leave
// the machine to those that it watches.
const lookPause = 300 * time.Microsecond

func (w *watcher) look() sight {
	w.t.Helper()
	d := w.d
	reply, err := lookScript.Run(context.Background(), d.Client, []string{d.Key(w.lock), d.Key("failed"), d.Key("test:stopped")}).Slice()
	require.NoError(w.t, err)
	return sight{free: reply[0] != w.holder, recorded: reply[1].(int64), stopped: reply[2].(int64) > 0}
}

// awaitLock waits until the job has its lock and returns when that was seen; nil if the
// job has ended before.
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

// living says which of the processes of the code live.
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

// watch looks until the lock is free and returns how long that was after the job was
// told to stop.
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

// lives reports whether any thread of a process still runs. Another process with the
// same number is another one.
func lives(p proctest.Process) bool {
	now, ok := proctest.Look(p.PID)
	if !ok || now.Start != p.Start || now.State == "X" {
		return false
	}
	return now.State != "Z" || threads(p.PID) > 1
}

// threads is how many threads of a process there are; the first one may have ended
// before the others.
func threads(pid int) int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return len(list)
}

// jobProcesses are the living processes of commands.
func jobProcesses(d *harness.Daemon) []proctest.Process {
	return slices.DeleteFunc(d.Processes(), func(p proctest.Process) bool { return p.Env("RESQUED_JOB") == "" })
}

// figures collects how long the kills of a matrix took, by code and by way.
type figures map[string]map[string]time.Duration

// write logs a line for each code, and what it took in the median and at worst.
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
