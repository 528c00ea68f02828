package system_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// stalledLog returns the writing end of a pipe that is no longer read after fill was called.
func stalledLog(t *testing.T) (w *os.File, fill func()) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return w, func() {
		// Opened again, the pipe does not block here, and still does for the daemon.
		junk, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", w.Fd()), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		require.NoError(t, err)
		defer func() { _ = junk.Close() }()
		for size := 4096; size > 0; {
			_, err := syscall.Write(int(junk.Fd()), make([]byte, size))
			if errors.Is(err, syscall.EAGAIN) {
				size /= 2
				continue
			}
			require.NoError(t, err)
		}
	}
}

// TestLogThatBlocks checks that a log that is not read delays nothing: beats are sent, jobs are
// killed, signals take effect.
func TestLogThatBlocks(t *testing.T) {
	t.Parallel()
	log, fill := stalledLog(t)
	d := harness.Start(t, harness.Options{
		App: true, Workers: 2, Output: log, Config: stuckCommands,
		Env: []string{"RESQUED_LOG_LEVEL=debug", "RESQUE_TERM_TIMEOUT=" + killGrace.String()},
	})
	fill()
	leases := func() map[string]float64 {
		leases := map[string]float64{}
		for _, z := range d.Client.ZRangeWithScores(t.Context(), d.Key("resqued:procs"), 0, -1).Val() {
			leases[fmt.Sprint(z.Member)] = z.Score
		}
		return leases
	}
	d.PushRaw("mail", `{"class":"Blocked","args":[1],"id":"the-job"}`)
	d.AwaitNoted("started", 1)
	proctest.Await(t, patience, func() bool { return len(leases()) == 2 }, "both worker processes")
	before := leases()
	for range 2 { // the first beat may have been under way
		proctest.Await(t, patience, func() bool {
			now := leases()
			for proc, lease := range before {
				if now[proc] <= lease {
					return false
				}
			}
			return true
		}, "heartbeats of both worker processes")
		before = leases()
	}

	d.Signal(usr1)
	wasKilled(t, d.AwaitFailures(1))
	d.Push("mail", "Count", 2)
	d.AwaitNoted("ran", 1)
	d.Signal(syscall.SIGQUIT)
	require.Zero(t, d.Exit())
}
