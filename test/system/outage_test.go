package system_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// durable are options for a server that loses no acknowledged write in a crash.
var durable = redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}

// noteTo returns a command that writes each job to a file, not to Redis.
func noteTo(path string) string {
	return fmt.Sprintf(`
handlers:
  Note:
    command: [sh, -c, 'read -r job; echo "$RESQUED_PROC $job" >> %s']
`, path)
}

func TestRedisIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable)
	server.Kill()
	d := harness.Start(t, harness.Options{App: true, Redis: server, Unready: true})
	d.AwaitLog("edis")
	require.False(t, d.AwaitEnd(2*time.Second), "the daemon gave up: %s", d.Log())
	require.False(t, d.HasNotified("READY=1"))
	var used time.Duration
	for _, p := range d.Processes() {
		used += proctest.CPUTime(p.PID)
	}
	require.Less(t, used, time.Second, "waiting costs too much processor time")
	server.Restart()
	d.AwaitReady()
	d.Push("mail", "Count", 1)
	d.AwaitNoted("ran", 1)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

func TestRedisGoesAway(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct{ leave, comeBack func(*redistest.Server) }{
		"it crashes": {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"it hangs":   {(*redistest.Server).Hang, (*redistest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const jobs = 600
			server := redistest.Start(t, durable)
			out := filepath.Join(t.TempDir(), "ran")
			d := harness.Start(t, harness.Options{
				Workers: 2, Threads: 4, JobsPerFork: 100, Redis: server, Config: noteTo(out),
			})
			pid := d.PID
			payloads := make([]string, jobs)
			for i := range payloads {
				payloads[i] = fmt.Sprintf(`{"class":"Note","args":[%d]}`, i)
			}
			d.PushRaw("mail", payloads...)
			for range 2 {
				proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight > 0 || d.Snapshot().Queued == 0 }, "jobs in hand")
				o.leave(server)
				require.False(t, d.AwaitEnd(1500*time.Millisecond), "the daemon ended: %s", d.Log())
				o.comeBack(server)
			}
			d.AwaitProcessed(jobs, 2*time.Minute)
			require.Empty(t, d.Failures())
			require.Equal(t, pid, d.PID)
			ran, _ := readNotes(t, out)
			require.Len(t, ran, jobs)
			for id, times := range ran {
				require.Equal(t, "1", times, "job %s", id)
			}
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}
