package system_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestTheBinaryGoesAway replaces and removes the file of the binary, as a deploy does: the
// running daemon continues with the program that it was started from.
func TestTheBinaryGoesAway(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(harness.App(t))
	require.NoError(t, err)
	binary := filepath.Join(t.TempDir(), "app")
	proctest.WriteProgram(t, binary, program)
	d := harness.Start(t, harness.Options{Binary: binary})
	proctest.WriteProgram(t, binary+".new", []byte("#!/bin/false\n"))
	require.NoError(t, os.Rename(binary+".new", binary))
	for round := range 2 {
		old := d.WorkerPIDs()
		require.NoError(t, unix.Kill(old[0], unix.SIGKILL))
		awaitOthers(t, d, old, 1)
		d.Push("mail", "Count", round)
		d.AwaitNoted("ran", round+1)
		require.NoError(t, os.RemoveAll(binary))
	}
}

// TestPoison checks that a job that kills its process is tried three times, and then fails.
func TestPoison(t *testing.T) {
	t.Parallel()
	t.Run("in processes of one thread", func(t *testing.T) {
		t.Parallel()
		poison(t, 1)
	})
	t.Run("its neighbours are not blamed", func(t *testing.T) {
		t.Parallel()
		poison(t, 4)
	})
}

func poison(t *testing.T, threads int) {
	t.Helper()
	const jobs = 200
	d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: threads})
	d.Push("mail", "Count", harness.Range(1, jobs)...)
	d.Push("mail", "Crash", 1001)
	d.Push("mail", "Count", harness.Range(jobs+1, 2*jobs)...)
	failures := d.AwaitFailures(1)
	require.Contains(t, string(failures[0].Payload), "1001")
	require.Equal(t, "Resque::DirtyExit", failures[0].Exception)
	require.Equal(t, "3", d.Noted("started")["1001"])
	d.AwaitNoted("ran", 2*jobs)
	d.AwaitProcessed(2*jobs+1, patience)
	require.Len(t, d.Failures(), 1)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

func TestCrashLoopIsSlow(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Workers: 2})
	d.Push("mail", "Crash", harness.Range(1, 1000)...)
	d.AwaitNoted("started", 3)
	<-time.After(5 * time.Second)
	crashed := 0
	for range d.Noted("started-by") {
		crashed++
	}
	t.Logf("%d processes crashed in 5 s", crashed)
	require.Less(t, crashed, 60)
	require.True(t, proctest.Alive(d.PID))
	d.Signal(term)
	require.Zero(t, d.Exit())
}

func TestPIDFile(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Env: []string{"PIDFILE=resqued.pid"}})
	text, err := os.ReadFile(filepath.Join(d.Dir, "resqued.pid"))
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(d.PID)+"\n", string(text))

	_, stderr, code := d.Run("work", "--config", d.ConfigFile)
	require.NotZero(t, code, "a second daemon took the file")
	require.Contains(t, stderr, strconv.Itoa(d.PID))

	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.NoFileExists(t, filepath.Join(d.Dir, "resqued.pid"))
}

// TestLogReaderGoesAway checks that the daemon survives the end of the process that reads its
// log.
func TestLogReaderGoesAway(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	d := harness.Start(t, harness.Options{App: true, Output: w})
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
	d.Signal(usr2)
	d.AwaitStatus("paused")
	d.Signal(cont)
	d.Push("mail", "Fail", 1)
	d.AwaitFailures(1)
	d.Push("mail", "Count", 2)
	d.AwaitNoted("ran", 2)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

// TestTitlesAndNotifications checks what ps shows and what the service manager is told.
func TestTitlesAndNotifications(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Workers: 3})
	master, ok := proctest.Look(d.PID)
	require.True(t, ok)
	require.True(t, strings.HasPrefix(master.Title, "resqued (resque-3): master"), master.Title)
	proctest.Await(t, patience, func() bool { return strings.HasPrefix(d.Status(), "running, 3 workers") }, "three worker processes")
	workers := d.Workers()
	require.Len(t, workers, 3)
	for _, w := range workers {
		require.Regexp(t, `^resqued \(resque-3\): worker [123] of 3`, w.Title)
		require.Equal(t, w.PID, w.Group)
		require.Empty(t, w.Env("NOTIFY_SOCKET"))
		for _, pair := range w.Environ {
			require.NotContains(t, pair, "RESQUED_CONFIG_JSON")
		}
	}
	d.Push("mail", "Gate", 1)
	d.AwaitNoted("started", 1)
	d.Signal(hup)
	proctest.Await(t, patience, func() bool {
		return d.HasNotified("RELOADING=1")
	}, "RELOADING")
	d.Signal(quit)
	d.AwaitStatus("draining")
	require.True(t, d.HasNotified("STOPPING=1"))
	proctest.Await(t, patience, func() bool {
		return slices.ContainsFunc(d.Notified(), func(line string) bool {
			return strings.HasPrefix(line, "EXTEND_TIMEOUT_USEC=")
		})
	}, "EXTEND_TIMEOUT_USEC")
	d.Open()
	require.Zero(t, d.Exit())
}

// TestStoppedWorkerProcess checks that a stopped worker process is replaced and its job runs
// again.
func TestStoppedWorkerProcess(t *testing.T) {
	t.Parallel()
	if !harness.Full() {
		t.Skip("takes half a minute and more: make system")
	}
	d := harness.Start(t, harness.Options{App: true})
	d.Push("mail", "Gate", 1)
	d.AwaitNoted("started", 1)
	pid := holder(t, d, 1)
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	proctest.Await(t, 2*time.Minute, func() bool { return !proctest.Alive(pid) }, "the end of process %d", pid)
	proctest.Await(t, patience, func() bool { return d.Noted("started")["1"] == "2" }, "the second run")
	d.Open()
	d.AwaitNoted("ran", 1)
}

// TestDescendantsOfCommands checks that a command's descendants do not survive its kill,
// wherever they are.
func TestDescendantsOfCommands(t *testing.T) {
	t.Parallel()
	const handlers = `
handlers:
  Tree:
    command: [sh, -c, 'sleep 1000 & setsid sleep 1001 & trap "" TERM; echo here >&2; while :; do sleep 1; done']
`
	for _, sig := range []unix.Signal{usr1, term} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{Config: handlers, Env: []string{"RESQUE_TERM_TIMEOUT=2"}})
			d.PushRaw("mail", `{"class":"Tree","args":[1]}`)
			sleeps := func() []proctest.Process {
				var found []proctest.Process
				for _, p := range d.Processes() {
					if strings.HasPrefix(p.Title, "sleep 100") {
						found = append(found, p)
					}
				}
				return found
			}
			proctest.Await(t, patience, func() bool { return len(sleeps()) == 2 }, "the command's descendants")
			d.Signal(sig)
			proctest.Await(t, patience, func() bool {
				s := d.Snapshot()
				return s.InFlight == 0 && s.Failed == 1
			}, "the record of the killed job")
			require.Empty(t, sleeps(), "descendants live on when the lock is released")
			wasKilled(t, d.Failures())
			if sig == usr1 {
				d.Signal(quit)
			}
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}
