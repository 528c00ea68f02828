package system_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// A cell checks what one signal does in one state: it gets a daemon in that state and sends the
// signal itself.
type cell func(t *testing.T, d *harness.Daemon)

// A state describes how a daemon gets there. Unless stated otherwise, job 1 (a Gate) is in hand
// and job 2 was pushed after the state was reached.
type state struct {
	name  string
	reach func(t *testing.T) *harness.Daemon
	cells map[syscall.Signal]cell
}

const (
	term = unix.SIGTERM
	intr = unix.SIGINT
	quit = unix.SIGQUIT
	usr1 = unix.SIGUSR1
	usr2 = unix.SIGUSR2
	cont = unix.SIGCONT
	hup  = unix.SIGHUP
)

var all = []syscall.Signal{term, intr, quit, usr1, usr2, cont, hup}

func runCells(t *testing.T, states []state) {
	t.Helper()
	for _, s := range states {
		for _, sig := range all {
			run, ok := s.cells[sig]
			require.True(t, ok, "%s has no cell for %s", s.name, unix.SignalName(sig))
			t.Run(s.name+"/"+unix.SignalName(sig), func(t *testing.T) {
				t.Parallel()
				run(t, s.reach(t))
			})
		}
	}
}

// How long a killed job that does not react keeps its process alive: short where a test waits
// for it, long where it must not end soon. A job that reacts also needs longKill where its
// process must outlive it, because it may be slow to react.
const (
	shortKill = "RESQUE_TERM_TIMEOUT=1"
	longKill  = "RESQUE_TERM_TIMEOUT=60"
)

// The table of the master.

func starting(t *testing.T) *harness.Daemon {
	t.Helper()
	d := harness.Start(t, harness.Options{
		App: true, Unready: true, Env: []string{"RESQUED_TEST_GATE=ready-now"},
	})
	d.Push("mail", "Count", 1)
	d.AwaitStatus("starting")
	proctest.Await(t, patience, func() bool { return len(d.Workers()) == 1 }, "a worker process that boots")
	return d
}

// letBoot lets the worker process of a starting daemon become ready.
func letBoot(t *testing.T, d *harness.Daemon) {
	t.Helper()
	d.Touch("ready-now")
	d.AwaitReady()
}

func running(t *testing.T) *harness.Daemon {
	t.Helper()
	d := harness.Start(t, harness.Options{App: true, Env: []string{longKill}})
	d.Push("mail", "Gate", 1)
	d.AwaitNoted("started", 1)
	d.Push("mail", "Count", 2)
	return d
}

func paused(t *testing.T) *harness.Daemon {
	t.Helper()
	d := running(t)
	d.Signal(usr2)
	awaitState(t, d, "paused")
	return d
}

func draining(t *testing.T) *harness.Daemon {
	t.Helper()
	d := running(t)
	d.Signal(quit)
	awaitState(t, d, "draining")
	return d
}

// awaitState waits until the master is in a state and every worker process knows it. The master
// changes before they do, and they work on until they know.
func awaitState(t *testing.T, d *harness.Daemon, state string) {
	t.Helper()
	d.AwaitStatus(state)
	for _, pid := range d.WorkerPIDs() {
		awaitTitle(t, pid, state)
	}
}

// killing returns a daemon that kills a job which does not react, with a long grace.
func killing(t *testing.T) *harness.Daemon {
	t.Helper()
	d := harness.Start(t, harness.Options{App: true, Env: []string{longKill}})
	d.Push("mail", "Stubborn", 1)
	d.AwaitNoted("started", 1)
	d.Push("mail", "Count", 2)
	d.Signal(term)
	d.AwaitStatus("killing")
	return d
}

const patience = time.Minute

// unexpired is less than a job lock lasts: a lock that is gone by then did not expire.
const unexpired = 30 * time.Second

func TestSignalsToTheMaster(t *testing.T) {
	t.Parallel()
	runCells(t, []state{
		{"starting", starting, map[syscall.Signal]cell{
			term: endsWithoutAJob(term),
			intr: endsWithoutAJob(intr),
			quit: endsWithoutAJob(quit),
			usr1: func(t *testing.T, d *harness.Daemon) {
				d.Signal(usr1)
				d.AwaitLog(`"signal":"SIGUSR1"`)
				letBoot(t, d)
				d.AwaitNoted("ran", 1)
				require.Empty(t, d.Failures())
			},
			usr2: func(t *testing.T, d *harness.Daemon) {
				d.Signal(usr2)
				d.AwaitLog(`"does":"start paused"`)
				// The log line comes before the message to the worker process. When the next
				// signal has been handled, the message has been sent.
				d.Signal(usr2)
				proctest.Await(t, patience, func() bool { return strings.Count(d.Log(), `"does":"start paused"`) == 2 }, "the second signal")
				letBoot(t, d)
				awaitState(t, d, "paused")
				takesNothing(t, d)
				d.Signal(cont)
				d.AwaitNoted("ran", 1)
			},
			cont: func(t *testing.T, d *harness.Daemon) {
				d.Signal(usr2)
				d.AwaitLog(`"does":"start paused"`)
				d.Signal(cont)
				letBoot(t, d)
				d.AwaitNoted("ran", 1)
			},
			hup: func(t *testing.T, d *harness.Daemon) {
				d.Signal(hup)
				d.AwaitLog(`"does":"reload after the start"`)
				first := d.WorkerPIDs()
				letBoot(t, d)
				awaitOthers(t, d, first, 1)
				d.AwaitNoted("ran", 1)
			},
		}},
		{"running", running, map[syscall.Signal]cell{
			term: killsAndEnds(term),
			intr: killsAndEnds(intr),
			quit: func(t *testing.T, d *harness.Daemon) {
				d.Signal(quit)
				awaitState(t, d, "draining")
				finishes(t, d)
			},
			usr1: killsAndGoesOn,
			usr2: func(t *testing.T, d *harness.Daemon) {
				d.Signal(usr2)
				awaitState(t, d, "paused")
				d.Open()
				d.AwaitNoted("ran", 1)
				takesNothing(t, d)
				d.Signal(cont)
				d.AwaitNoted("ran", 2)
			},
			cont: func(t *testing.T, d *harness.Daemon) {
				d.Signal(cont)
				d.AwaitLog(`"means":"resume"`)
				bothRun(t, d)
			},
			hup: func(t *testing.T, d *harness.Daemon) {
				first := d.WorkerPIDs()
				d.Signal(hup)
				// One process of one thread: the successor waits for it, because one job at a
				// time was asked for.
				d.AwaitStatus("1 retiring")
				takesNothing(t, d)
				d.Open()
				d.AwaitNoted("ran", 2)
				awaitOthers(t, d, first, 1)
				require.Empty(t, d.Failures())
			},
		}},
		{"paused", paused, map[syscall.Signal]cell{
			term: killsAndEnds(term),
			intr: killsAndEnds(intr),
			quit: func(t *testing.T, d *harness.Daemon) {
				d.Signal(quit)
				awaitState(t, d, "draining")
				finishes(t, d)
			},
			usr1: killsAndGoesOn,
			usr2: func(t *testing.T, d *harness.Daemon) {
				d.Signal(usr2)
				d.Open()
				d.AwaitNoted("ran", 1)
				takesNothing(t, d)
			},
			cont: func(t *testing.T, d *harness.Daemon) {
				d.Signal(cont)
				bothRun(t, d)
			},
			hup: func(t *testing.T, d *harness.Daemon) {
				first := d.WorkerPIDs()
				d.Signal(hup)
				d.Open()
				awaitOthers(t, d, first, 1)
				awaitState(t, d, "paused")
				takesNothing(t, d)
				d.Signal(cont)
				d.AwaitNoted("ran", 2)
			},
		}},
		{"draining", draining, map[syscall.Signal]cell{
			term: killsAndEnds(term),
			intr: killsAndEnds(intr),
			quit: goesOnDraining(quit),
			usr1: killsAndEnds(usr1),
			usr2: goesOnDraining(usr2),
			cont: goesOnDraining(cont),
			hup: func(t *testing.T, d *harness.Daemon) {
				d.Signal(hup)
				d.AwaitLog("refused")
				finishes(t, d)
			},
		}},
		{"killing", killing, map[syscall.Signal]cell{
			term: killsNow(term),
			intr: killsNow(intr),
			quit: goesOnKilling(quit),
			usr1: goesOnKilling(usr1),
			usr2: goesOnKilling(usr2),
			cont: goesOnKilling(cont),
			hup: func(t *testing.T, d *harness.Daemon) {
				d.Signal(hup)
				d.AwaitLog("refused")
				goesOnKilling(cont)(t, d)
			},
		}},
	})
}

// endsWithoutAJob requires that the daemon leaves normally and has run nothing.
func endsWithoutAJob(sig syscall.Signal) cell {
	return func(t *testing.T, d *harness.Daemon) {
		d.Signal(sig)
		require.True(t, d.AwaitEnd(patience), "the daemon waits for a start that is no longer wanted: %s", d.Status())
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
		require.Equal(t, harness.Snapshot{Queued: 1}, d.Snapshot())
	}
}

// killsAndEnds requires that job 1 is killed and recorded, job 2 still waits, and nothing else
// is left.
func killsAndEnds(sig syscall.Signal) cell {
	return func(t *testing.T, d *harness.Daemon) {
		d.Signal(sig)
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
		wasKilled(t, d.Failures())
		require.Equal(t, harness.Snapshot{Queued: 1, Processed: 1, Failed: 1}, d.Snapshot())
	}
}

func wasKilled(t *testing.T, failures []harness.Failure) {
	t.Helper()
	require.Len(t, failures, 1)
	require.Equal(t, "Resque::DirtyExit", failures[0].Exception)
	require.Equal(t, "mail", failures[0].Queue)
	require.Contains(t, string(failures[0].Payload), `"args":[1]`)
}

// killsAndGoesOn requires that job 1 is killed and recorded and that job 2 runs.
func killsAndGoesOn(t *testing.T, d *harness.Daemon) {
	d.Signal(usr1)
	wasKilled(t, d.AwaitFailures(1))
	d.AwaitNoted("ran", 1)
	require.Contains(t, d.Noted("ran"), "2")
	require.True(t, proctest.Alive(d.PID))
}

// finishes requires that job 1 may end by itself, job 2 is not taken, and nothing else is left.
func finishes(t *testing.T, d *harness.Daemon) {
	t.Helper()
	takesNothing(t, d)
	d.Open()
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
	require.Equal(t, map[string]string{"1": "1"}, d.Noted("ran"))
	require.Equal(t, harness.Snapshot{Queued: 1, Processed: 1}, d.Snapshot())
}

// bothRun requires that jobs 1 and 2 end well.
func bothRun(t *testing.T, d *harness.Daemon) {
	t.Helper()
	d.Open()
	d.AwaitNoted("ran", 2)
	require.Empty(t, d.Failures())
}

// takesNothing waits for some polls and requires that job 2 still waits.
func takesNothing(t *testing.T, d *harness.Daemon) {
	t.Helper()
	before := d.Snapshot().Queued
	require.Positive(t, before)
	require.False(t, proctest.Within(500*time.Millisecond, func() bool { return d.Snapshot().Queued < before }),
		"a job was taken")
}

func goesOnDraining(sig syscall.Signal) cell {
	return func(t *testing.T, d *harness.Daemon) {
		d.Signal(sig)
		finishes(t, d)
	}
}

// killsNow requires that a copy of the signal that comes at once changes nothing, and that one
// that comes a second later ends everything at once. On a busy machine the first copy may also
// come a second later.
func killsNow(sig syscall.Signal) cell {
	return func(t *testing.T, d *harness.Daemon) {
		told := d.Told
		d.Signal(sig)
		if d.AwaitEnd(1200 * time.Millisecond) {
			require.GreaterOrEqual(t, time.Since(told), time.Second)
		} else {
			d.Signal(sig)
		}
		require.Zero(t, d.Exit())
		wasKilled(t, d.Failures())
		require.Empty(t, d.Residue())
	}
}

// goesOnKilling requires that the signal changes nothing: the job keeps its process until it is
// over.
func goesOnKilling(sig syscall.Signal) cell {
	return func(t *testing.T, d *harness.Daemon) {
		d.Signal(sig)
		require.False(t, d.AwaitEnd(300*time.Millisecond))
		require.Equal(t, int64(1), d.Snapshot().InFlight)
		d.Open()
		require.Zero(t, d.Exit())
		require.Empty(t, d.Residue())
		require.NotContains(t, d.Noted("ran"), "2")
	}
}

// awaitOthers waits until the daemon has n worker processes, all of them new, and no old one is
// left.
func awaitOthers(t *testing.T, d *harness.Daemon, old []int, n int) {
	t.Helper()
	proctest.Await(t, patience, func() bool {
		pids := d.WorkerPIDs()
		for _, pid := range pids {
			if slices.Contains(old, pid) {
				return false
			}
		}
		return len(pids) == n
	}, "%d new worker processes instead of %v", n, old)
}

// The table of a single worker process. The other process must not be affected.

// pair starts a daemon of two processes of one thread each, which both hold a Gate job. The
// cell signals the process that holds job 1.
func pair(t *testing.T, env ...string) *harness.Daemon {
	t.Helper()
	d := harness.Start(t, harness.Options{App: true, Workers: 2, Env: append([]string{longKill}, env...)})
	d.Push("mail", "Gate", 1, 2)
	d.AwaitNoted("started", 2)
	return d
}

// holder returns the pid of the worker process that has started a job.
func holder(t *testing.T, d *harness.Daemon, id int) int {
	t.Helper()
	pid, err := strconv.Atoi(d.Noted("pid")[strconv.Itoa(id)])
	require.NoError(t, err)
	return pid
}

func signalHolder(t *testing.T, d *harness.Daemon, sig syscall.Signal) (pid int) {
	t.Helper()
	pid = holder(t, d, 1)
	require.NoError(t, unix.Kill(pid, sig))
	return pid
}

func awaitTitle(t *testing.T, pid int, part string) {
	t.Helper()
	proctest.Await(t, patience, func() bool {
		p, _ := proctest.Look(pid)
		return strings.Contains(p.Title, part)
	}, "process %d to call itself %q", pid, part)
}

// afterwards requires that job 2 in the other process ends well, that two processes work on,
// and that nothing is left at the end.
func afterwards(t *testing.T, d *harness.Daemon) {
	t.Helper()
	if d.Noted("ran")["2"] == "" {
		require.True(t, proctest.Alive(holder(t, d, 2)))
	}
	d.Open()
	proctest.Await(t, patience, func() bool { return d.Noted("ran")["2"] == "1" }, "the job of the other process")
	proctest.Await(t, patience, func() bool { return len(d.Workers()) == 2 }, "two worker processes")
	d.Push("mail", "Count", 101, 102, 103)
	proctest.Await(t, patience, func() bool {
		ran := d.Noted("ran")
		return ran["101"] == "1" && ran["102"] == "1" && ran["103"] == "1"
	}, "three more jobs")
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}

func TestSignalsToOneWorkerProcess(t *testing.T) {
	t.Parallel()
	running := func(t *testing.T) *harness.Daemon { return pair(t) }
	paused := func(t *testing.T) *harness.Daemon {
		d := pair(t)
		awaitTitle(t, signalHolder(t, d, usr2), "paused")
		return d
	}
	draining := func(t *testing.T) *harness.Daemon {
		d := pair(t)
		awaitTitle(t, signalHolder(t, d, quit), "draining")
		return d
	}
	// The process's quota is one job, which it has in hand.
	retiring := func(t *testing.T) *harness.Daemon {
		d := pair(t, "JOBS_PER_FORK=1", "RESQUED_MAX_RETIRING=2")
		awaitTitle(t, holder(t, d, 1), "retiring")
		awaitTitle(t, holder(t, d, 2), "retiring")
		return d
	}
	killed := func(sig syscall.Signal) cell {
		return func(t *testing.T, d *harness.Daemon) {
			pid := signalHolder(t, d, sig)
			wasKilled(t, d.AwaitFailures(1))
			proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of process %d", pid)
			afterwards(t, d)
		}
	}
	aborted := func(t *testing.T, d *harness.Daemon) {
		pid := signalHolder(t, d, usr1)
		wasKilled(t, d.AwaitFailures(1))
		require.True(t, proctest.Alive(pid))
		// Its thread is free again; the other one is still busy.
		d.Push("mail", "Gate", 3)
		d.AwaitNoted("started", 3)
		require.Equal(t, pid, holder(t, d, 3))
		afterwards(t, d)
	}
	drains := func(sig syscall.Signal) cell {
		return func(t *testing.T, d *harness.Daemon) {
			pid := signalHolder(t, d, sig)
			d.Open()
			d.AwaitNoted("ran", 2)
			proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of process %d", pid)
			require.Empty(t, d.Failures())
			afterwards(t, d)
		}
	}
	unmoved := func(sig syscall.Signal) cell {
		return func(t *testing.T, d *harness.Daemon) {
			pid := signalHolder(t, d, sig)
			require.False(t, proctest.Within(300*time.Millisecond, func() bool { return !proctest.Alive(pid) }))
			require.Empty(t, d.Failures())
			afterwards(t, d)
			require.Equal(t, "1", d.Noted("ran")["1"])
		}
	}
	runCells(t, []state{
		{"running", running, map[syscall.Signal]cell{
			term: killed(term),
			intr: killed(intr),
			quit: drains(quit),
			usr1: aborted,
			usr2: func(t *testing.T, d *harness.Daemon) {
				pid := signalHolder(t, d, usr2)
				awaitTitle(t, pid, "paused")
				d.Open()
				d.AwaitNoted("ran", 2)
				d.Shut()
				// One thread is left that takes jobs, in the other process.
				d.Push("mail", "Gate", 3, 4)
				d.AwaitNoted("started", 3)
				takesNothing(t, d)
				require.Equal(t, holder(t, d, 2), holder(t, d, 3))
				require.NoError(t, unix.Kill(pid, cont))
				d.AwaitNoted("started", 4)
				require.Equal(t, pid, holder(t, d, 4))
				afterwards(t, d)
			},
			cont: unmoved(cont),
			hup:  unmoved(hup),
		}},
		{"paused", paused, map[syscall.Signal]cell{
			term: killed(term),
			intr: killed(intr),
			quit: drains(quit),
			usr1: aborted,
			usr2: unmoved(usr2),
			cont: func(t *testing.T, d *harness.Daemon) {
				pid := signalHolder(t, d, cont)
				d.Open()
				d.AwaitNoted("ran", 2)
				d.Shut()
				d.Push("mail", "Gate", 3, 4)
				d.AwaitNoted("started", 4)
				require.Contains(t, []int{holder(t, d, 3), holder(t, d, 4)}, pid)
				afterwards(t, d)
			},
			hup: unmoved(hup),
		}},
		{"draining", draining, map[syscall.Signal]cell{
			term: killed(term),
			intr: killed(intr),
			quit: drains(quit),
			usr1: killed(usr1),
			usr2: drains(usr2),
			cont: drains(cont),
			hup:  drains(hup),
		}},
		{"retiring", retiring, map[syscall.Signal]cell{
			term: killed(term),
			intr: killed(intr),
			quit: drains(quit),
			usr1: killed(usr1),
			usr2: drains(usr2),
			cont: drains(cont),
			hup:  drains(hup),
		}},
	})
}

// TestSignalsToAWorkerProcessThatStarts signals a worker process before it is ready. It has no
// job yet, so nothing is lost: the master starts another one until the daemon works.
func TestSignalsToAWorkerProcessThatStarts(t *testing.T) {
	t.Parallel()
	for _, sig := range all {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			d := starting(t)
			// Go ignores USR1 and USR2 until the program subscribes to them, and a worker
			// process sets its name just after that.
			comm := fmt.Sprintf("/proc/%d/comm", d.WorkerPIDs()[0])
			proctest.Await(t, patience, func() bool {
				name, err := os.ReadFile(comm)
				return err == nil && string(name) == "resqued\n"
			}, "a worker process that listens")
			pid := d.WorkerPIDs()[0]
			require.NoError(t, unix.Kill(pid, sig))
			if sig == usr2 {
				d.AwaitLog(`"does":"start paused"`) // it has heard
			}
			letBoot(t, d)
			if sig == usr2 {
				awaitTitle(t, pid, "paused")
				takesNothing(t, d)
				require.NoError(t, unix.Kill(pid, cont))
			}
			d.AwaitNoted("ran", 1)
			require.Empty(t, d.Failures())
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}

// TestSignalsToAWorkerProcessThatKills signals a worker process that ends at once by itself,
// with a job that does not react. Only a second signal, at least a second later, ends it before
// its time.
func TestSignalsToAWorkerProcessThatKills(t *testing.T) {
	t.Parallel()
	for _, sig := range all {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			d := harness.Start(t, harness.Options{App: true, Env: []string{longKill}})
			d.Push("mail", "Stubborn", 1)
			d.AwaitNoted("started", 1)
			told := time.Now()
			pid := signalHolder(t, d, term)
			awaitTitle(t, pid, "killing")
			require.NoError(t, unix.Kill(pid, sig))
			if proctest.Within(1200*time.Millisecond, func() bool { return !proctest.Alive(pid) }) {
				// On a busy machine a copy of the signal that is sent at once may arrive a
				// second later.
				require.Contains(t, []syscall.Signal{term, intr}, sig)
				require.GreaterOrEqual(t, time.Since(told), time.Second)
			} else {
				_ = unix.Kill(pid, sig)
			}
			if sig == term || sig == intr {
				wasKilled(t, d.AwaitFailures(1))
				proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of process %d", pid)
			} else {
				require.False(t, proctest.Within(300*time.Millisecond, func() bool { return !proctest.Alive(pid) }))
				d.Open()
				proctest.Await(t, patience, func() bool { return !proctest.Alive(pid) }, "the end of process %d", pid)
			}
			d.Push("mail", "Count", 2)
			proctest.Await(t, patience, func() bool { return d.Noted("ran")["2"] == "1" }, "a job of the next process")
			d.Signal(quit)
			require.Zero(t, d.Exit())
			require.Empty(t, d.Residue())
		})
	}
}

// TestSignalsAtAnyMomentOfAStart signals the master at any moment of its start. Before its
// handlers are installed the kernel's defaults apply, but nothing may be left behind, and a
// daemon that survives must work.
func TestSignalsAtAnyMomentOfAStart(t *testing.T) {
	t.Parallel()
	rounds := 6
	if harness.Full() {
		rounds = 60
	}
	for _, sig := range all {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			early := 0
			for round := range rounds {
				d := harness.Start(t, harness.Options{App: true, Workers: 2, Unready: true})
				d.Push("mail", "Count", round)
				<-time.After(rand.N(60 * time.Millisecond))
				d.Signal(sig)
				if sig == term || sig == intr || sig == quit {
					// Go's own handler of QUIT ends a program with code 2.
					code := d.Exit()
					require.Contains(t, []int{0, -int(sig), 2}, code)
					if code != 0 {
						early++
					}
					require.Empty(t, d.Residue())
					require.Equal(t, int64(1), d.Snapshot().Jobs())
					continue
				}
				proctest.Within(patience, func() bool { return d.HasNotified("READY=1") || d.Ended() })
				if d.Ended() {
					require.Contains(t, []int{-int(sig), 2}, d.Exit())
					require.Empty(t, d.Residue())
					early++
					continue
				}
				d.Signal(cont)
				d.AwaitNoted("ran", 1)
				d.Signal(quit)
				require.Zero(t, d.Exit())
				require.Empty(t, d.Residue())
			}
			t.Logf("%d of %d came before the handlers", early, rounds)
		})
	}
}

// TestSignalsAtAnyMomentOfAWorkersStart does the same for a worker process that the master has
// just started.
func TestSignalsAtAnyMomentOfAWorkersStart(t *testing.T) {
	t.Parallel()
	daemons := 2
	if harness.Full() {
		daemons = 20
	}
	for _, sig := range all {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			for range daemons {
				workersStart(t, sig)
			}
		})
	}
}

// workersStart signals three starts of one daemon's worker process; after more failed starts in
// a row the master backs off.
func workersStart(t *testing.T, sig syscall.Signal) {
	t.Helper()
	d := harness.Start(t, harness.Options{App: true})
	for round := range 3 {
		old := d.WorkerPIDs()
		require.Len(t, old, 1)
		require.NoError(t, unix.Kill(old[0], unix.SIGKILL))
		var fresh []int
		proctest.Await(t, patience, func() bool {
			fresh = slices.DeleteFunc(d.WorkerPIDs(), func(pid int) bool { return pid == old[0] })
			return len(fresh) > 0
		}, "another worker process")
		<-time.After(rand.N(15 * time.Millisecond))
		_ = unix.Kill(fresh[0], sig)
		// It may have ended, or paused, or neither.
		proctest.Await(t, patience, func() bool {
			for _, pid := range d.WorkerPIDs() {
				_ = unix.Kill(pid, cont)
			}
			return len(d.Workers()) == 1
		}, "one worker process")
		d.Push("mail", "Count", round)
		proctest.Await(t, patience, func() bool {
			for _, pid := range d.WorkerPIDs() {
				_ = unix.Kill(pid, cont)
			}
			return d.Noted("ran")[strconv.Itoa(round)] == "1"
		}, "job %d", round)
	}
	require.Empty(t, d.Failures())
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}
