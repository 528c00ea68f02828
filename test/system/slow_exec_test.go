package system_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestSlowExec checks that a program whose execution the kernel delays holds up only its own
// job: others begin and end, the worker process keeps sending beats, and the job can be killed.
func TestSlowExec(t *testing.T) {
	t.Parallel()
	const handlers = `
handlers:
  Slow: {command: [./slow]}
  Quick: {command: [sh, -c, 'exit 0']}
  Beside: {command: [sh, -c, 'echo >> begun; until [ -e open ]; do sleep 0.1; done']}
`
	for name, processors := range map[string][]string{"one processor": {"GOMAXPROCS=1"}, "four processors": {"GOMAXPROCS=4"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{
				Threads: 3, Config: handlers,
				// A worker process that hangs is ended after nine seconds.
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

			// The same again with killed jobs: the process need not end for that.
			giveBack = proctest.Lease(t, program)
			d.PushRaw("mail", `{"class":"Slow","args":[]}`)
			// Its record in Redis precedes the process's knowledge of it; that of a later job
			// does not.
			d.PushRaw("mail", `{"class":"Quick","args":[]}`)
			d.AwaitProcessed(ends+2, patience)
			require.EqualValues(t, 2, d.Snapshot().InFlight, "the second run")
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

// TestCommandsHaveNoTerminal runs a daemon in the foreground of a terminal. Its jobs have none:
// a job that reads from the terminal fails, and a key that sends a signal sends it to the
// master alone.
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

// TestRunningCommandsNeedNoThreads checks that the number of running commands does not raise
// the number of their worker process's threads.
func TestRunningCommandsNeedNoThreads(t *testing.T) {
	t.Parallel()
	const jobs = 100
	d := harness.Start(t, harness.Options{Threads: jobs, Config: `
handlers:
  Wait: {command: [sh, -c, 'echo >> begun; read line <gate']}
`})
	require.NoError(t, unix.Mkfifo(filepath.Join(d.Dir, "gate"), 0o600))
	worker := d.WorkerPIDs()[0]
	threads := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", worker))
		require.NoError(t, err)
		return len(list)
	}
	for i := range jobs {
		d.PushRaw("mail", fmt.Sprintf(`{"class":"Wait","args":[%d]}`, i))
	}
	proctest.Await(t, patience, func() bool {
		text, _ := os.ReadFile(filepath.Join(d.Dir, "begun"))
		return strings.Count(string(text), "\n") == jobs
	}, "all commands")
	t.Logf("%d threads with %d commands", threads(), jobs)
	require.Less(t, threads(), jobs/2)
	gate, err := os.OpenFile(filepath.Join(d.Dir, "gate"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = gate.Close() }()
	_, err = gate.WriteString(strings.Repeat("\n", jobs))
	require.NoError(t, err)
	d.AwaitProcessed(jobs, patience)
	require.Empty(t, d.Failures())
}
