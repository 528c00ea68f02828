package system_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

const (
	// killGrace is the time that a killed job has before its process is killed. Jobs that react
	// have longGrace, so that a busy machine does not take them for stubborn ones.
	killGrace = 300 * time.Millisecond
	longGrace = 20 * time.Second
	// stuckTimeout is the time limit of the classes whose names end in Timed, as in the test
	// program.
	stuckTimeout = 300 * time.Millisecond
)

// stuckCode is code that ends only when it is killed.
type stuckCode struct {
	name, class string
	// processes is the number of processes of a command; 0 means a handler in Go.
	processes int
	// stubborn code ends only with its worker process.
	stubborn bool
}

func (c stuckCode) grace() string {
	if c.stubborn {
		return killGrace.String()
	}
	return longGrace.String()
}

var stuckCodes = []stuckCode{
	{name: "go, listens", class: "Obedient"},
	{name: "go, sleeps", class: "Asleep", stubborn: true},
	{name: "go, channel", class: "Blocked", stubborn: true},
	{name: "go, busy loop", class: "Spinning", stubborn: true},
	{name: "go, read of a pipe", class: "Reading", stubborn: true},
	{name: "go, flock", class: "Flocking", stubborn: true},
	{name: "command", class: "Polite", processes: 2},
	{name: "command, ignores TERM", class: "Deaf", processes: 2},
	{name: "command, grandchildren", class: "Family", processes: 5},
}

// stuckCommands are told apart by the files that they create when they are ready to be killed.
// The grandchildren of Family are in sessions of their own: one exits on TERM, one has lost its
// parent, one ignores TERM and has closed all its files.
const stuckCommands = `
heartbeat_frequency: 2
handlers:
  Polite: {command: &polite [sh, -c, 'sleep 1000 & : > ready; exec sleep 1000'], kill_after: 150ms}
  PoliteTimed: {command: *polite, kill_after: 150ms, timeout: 300ms}
  Deaf: {command: &deaf [sh, -c, 'trap "" TERM; : > ready; while :; do sleep 1000; done'], kill_after: 150ms}
  DeafTimed: {command: *deaf, kill_after: 150ms, timeout: 300ms}
  Family:
    kill_after: 150ms
    command: &family
      - sh
      - -c
      - |
        setsid sh -c ': > one; exec sleep 1000' &
        (setsid sh -c ': > two; exec sleep 1000' &)
        setsid sh -c 'trap "" TERM; : > three; sleep 1000; :' <&- >&- 2>&- 3>&- &
        until [ -e one -a -e two -a -e three ]; do sleep 0.01; done
        : > ready
        wait
  FamilyTimed: {command: *family, kill_after: 150ms, timeout: 300ms}
`

// A killWay is a way to kill the job of a daemon whose worker process is worker.
type killWay struct {
	name string
	kill func(t *testing.T, d *harness.Daemon, worker int)
	// asked: by a request in Redis. timed: by the time limit. ends: by the end of the daemon.
	asked, timed, ends bool
}

var killWays = []killWay{
	{name: "USR1 master", kill: signalMaster(usr1)},
	{name: "TERM master", kill: signalMaster(term), ends: true},
	{name: "USR1 process", kill: signalProcess(usr1)},
	{name: "TERM process", kill: signalProcess(term)},
	{name: "jobs kill", asked: true},
	{name: "timeout", timed: true},
}

func signalMaster(sig syscall.Signal) func(*testing.T, *harness.Daemon, int) {
	return func(_ *testing.T, d *harness.Daemon, _ int) { d.Signal(sig) }
}

func signalProcess(sig syscall.Signal) func(*testing.T, *harness.Daemon, int) {
	return func(t *testing.T, _ *harness.Daemon, worker int) {
		t.Helper()
		require.NoError(t, unix.Kill(worker, sig))
	}
}

// TestKillMatrix checks for all kinds of code and all ways to kill that the code is gone before
// the job is recorded, and the job recorded before its lock is free. The durations are only
// printed (-v).
func TestKillMatrix(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	took := figures{}
	t.Cleanup(func() { took.write(t) })
	for _, c := range stuckCodes {
		took[c.name] = map[string]time.Duration{}
		for _, way := range killWays {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				t.Parallel()
				free := killStuck(t, c, way)
				mu.Lock()
				defer mu.Unlock()
				took[c.name][way.name] = free
			})
		}
	}
}

// killStuck kills one job and returns the time from the kill until its lock was seen free.
func killStuck(t *testing.T, c stuckCode, way killWay) time.Duration {
	t.Helper()
	d := harness.Start(t, harness.Options{App: true, Config: stuckCommands, Env: []string{"RESQUE_TERM_TIMEOUT=" + c.grace()}})
	worker, _ := proctest.Look(d.WorkerPIDs()[0])
	class := c.class
	if way.timed {
		class += "Timed"
	}
	d.PushRaw("mail", fmt.Sprintf(`{"class":%q,"args":[1],"id":"the-job"}`, class))
	w, locked := awaitLock(t, d)
	answer := make(chan kill, 1)
	if w == nil { // its time was up before it could be met
		require.True(t, way.timed, "no kill was requested")
		require.Empty(t, jobProcesses(d))
		requireNoLocks(t, d)
		recorded(t, d, c, way, worker.PID, answer)
		return 0
	}
	w.command = c.processes > 0
	if !way.timed {
		awaitStuck(t, d, c)
	}
	switch {
	case w.command:
		w.code = jobProcesses(d)
	case c.stubborn:
		w.code = []proctest.Process{worker}
	}
	if !way.timed && w.command {
		require.GreaterOrEqual(t, len(w.code), c.processes)
	}

	switch {
	case way.timed:
		w.began = locked.Add(stuckTimeout)
	case way.asked:
		w.told = func() bool { return strings.Contains(d.Log(), "told to kill a job") }
		go func() { answer <- askKill(d, "the-job", c.grace()) }()
	default:
		w.began = time.Now()
		way.kill(t, d, worker.PID)
	}
	free := w.watch()
	recorded(t, d, c, way, worker.PID, answer)
	return free
}

// recorded checks the job's record, and that only a stubborn job costs its process.
func recorded(t *testing.T, d *harness.Daemon, c stuckCode, way killWay, worker int, answer <-chan kill) {
	t.Helper()
	failures := d.Failures()
	require.Len(t, failures, 1)
	exception := "Resque::DirtyExit"
	if way.timed && !c.stubborn {
		exception = "Resqued::Timeout"
	}
	require.Equal(t, exception, failures[0].Exception, failures[0].Error)
	if way.asked {
		how := "cancelled"
		if c.stubborn {
			how = "process_recycled"
		}
		require.Equal(t, kill{ID: "the-job", Killed: true, How: how}, <-answer)
	}
	if way.ends {
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
		return
	}
	d.Push("mail", "Count", 2)
	d.AwaitNoted("ran", 1)
	if !c.stubborn && way.name != "TERM process" {
		require.Equal(t, []int{worker}, d.WorkerPIDs())
	}
	require.Len(t, d.Failures(), 1)
}

// awaitStuck waits until the code has reached the point where only a kill ends it.
func awaitStuck(t *testing.T, d *harness.Daemon, c stuckCode) {
	t.Helper()
	if c.processes == 0 {
		d.AwaitNoted("started", 1)
		return
	}
	proctest.Await(t, patience, func() bool {
		_, err := os.Stat(filepath.Join(d.Dir, "ready"))
		return err == nil && len(jobProcesses(d)) >= c.processes
	}, "%d processes", c.processes)
}

// askKill kills a job by its id, through Redis, and returns the answer.
func askKill(d *harness.Daemon, id, grace string) kill {
	out, errs, code := d.Run("jobs", "kill", id, "--force-after", grace, "-o", "json")
	var k kill
	if err := json.Unmarshal([]byte(out), &k); err != nil || code != 0 {
		k.How = fmt.Sprintf("exit code %d: %s%s", code, out, errs)
	}
	return k
}
