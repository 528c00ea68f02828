package system_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// A program that the system does not open holds up its own job alone: others begin and end,
// the worker process gives signs of life, and the job can be killed.
func TestSlowExec(t *testing.T) {
	t.Parallel()
	const handlers = `
handlers:
  Slow: {command: [./slow]}
  Quick: {command: [sh, -c, 'exit 0']}
  Beside: {command: [sh, -c, 'echo >> begun; until [ -e open ]; do sleep 0.1; done']}
`
	for name, processors := range map[string][]string{"one processor": nil, "four processors": {"GOMAXPROCS=4"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{
				Threads: 3, Config: handlers,
				// A process that stands still is ended after nine seconds.
				Env: append([]string{"LOCKET_JOB_LOCK_DURATION=14", "LOCKET_HEARTBEAT_FREQUENCY=2", "RESQUE_TERM_TIMEOUT=10"}, processors...),
			})
			program := filepath.Join(d.Dir, "slow")
			proctest.WriteProgram(t, program, []byte("#!/bin/sh\necho >> ran\n"))
			lines := func(file string) int {
				text, _ := os.ReadFile(filepath.Join(d.Dir, file))
				return strings.Count(string(text), "\n")
			}
			d.PushRaw("mail", `{"class":"Beside","args":[]}`)
			proctest.Await(t, patience, func() bool { return lines("begun") == 1 }, "the job beside it")
			workers := d.WorkerPIDs()

			giveBack := proctest.Lease(t, program)
			d.PushRaw("mail", `{"class":"Slow","args":[]}`)
			held := time.Now()
			ends := int64(0)
			for time.Since(held) < 15*time.Second {
				ends++
				d.PushRaw("mail", `{"class":"Quick","args":[]}`)
				d.AwaitProcessed(ends, 10*time.Second)
				<-time.After(200 * time.Millisecond)
			}
			require.Zero(t, lines("ran"))
			require.Equal(t, workers, d.WorkerPIDs())
			giveBack()
			d.AwaitProcessed(ends+1, patience)
			require.Equal(t, 1, lines("ran"))

			// The same again, and the jobs are killed: the process need not go for that.
			giveBack = proctest.Lease(t, program)
			d.PushRaw("mail", `{"class":"Slow","args":[]}`)
			proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight == 2 }, "the second run")
			d.Signal(usr1)
			for _, failure := range d.AwaitFailures(2) {
				require.Equal(t, "Job was killed", failure.Error)
			}
			giveBack()
			require.Equal(t, 1, lines("ran"))
			require.Equal(t, 1, lines("begun"))
			require.Equal(t, workers, d.WorkerPIDs())
			require.NotContains(t, d.Log(), "sign of life")
			require.NotContains(t, d.Log(), "suspect")
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}

// A daemon in the foreground of a terminal: its jobs have none. One that asks there fails,
// and a key that means a signal means it for the master alone.
func TestCommandsHaveNoTerminal(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{Unready: true}) // for a Redis and a namespace
	d.AwaitReady()
	d.Signal(quit)
	require.Zero(t, d.Exit())

	home := t.TempDir()
	config := filepath.Join(home, "resqued.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
handlers:
  Asks: {command: [sh, -c, 'read answer </dev/tty && echo >> answered']}
  Waits: {command: [sh, -c, 'trap "echo >> interrupted" INT; trap "echo >> told; exit 1" TERM; echo >> begun; while :; do sleep 0.1; done']}
`), 0o600))
	f := atTerminal(t, home, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm", "REDIS_URL=" + d.URL, "RESQUE_NAMESPACE=" + d.Space,
		"THREAD_COUNT=2", "JOBS_PER_FORK=0", "QUEUES=*",
	}, harness.Binary(t), "work", "--config", config)
	lines := func(file string) int {
		text, _ := os.ReadFile(filepath.Join(home, file))
		return strings.Count(string(text), "\n")
	}
	d.PushRaw("mail", `{"class":"Waits","args":[]}`)
	proctest.Await(t, patience, func() bool { return lines("begun") == 1 }, "the job that waits")
	d.PushRaw("mail", `{"class":"Asks","args":[]}`)
	failures := d.AwaitFailures(1)
	require.Contains(t, failures[0].Error, "/dev/tty")
	require.Zero(t, lines("answered"))

	_, err := f.keys.WriteString("\x03")
	require.NoError(t, err)
	require.Zero(t, f.exit(t))
	require.Len(t, d.AwaitFailures(2), 2)
	require.Equal(t, 1, lines("told"))
	require.Zero(t, lines("interrupted"))
	f.nothingLeft(t)
}
