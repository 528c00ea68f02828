package handler_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func killAfter(d time.Duration) func(*handler.Options, *resqued.Class) {
	return func(_ *handler.Options, c *resqued.Class) { c.Command.KillAfter = d }
}

func TestKill(t *testing.T) {
	t.Parallel()

	t.Run("a command gets TERM first", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `trap 'echo cleaned up >&2; exit 4' TERM; echo $$ > pid; while :; do sleep 0.01; done`)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		pid := f.pid(t, "pid")
		cancel(resqued.ErrKilled)
		err := wait(t, done)
		require.ErrorIs(t, err, resqued.ErrKilled)
		require.ErrorContains(t, err, "resqued: job killed: sh: exit code 4:")
		require.ErrorContains(t, err, "cleaned up")
		require.True(t, gone(pid))
	})
	t.Run("exit code 0 after TERM is not a success", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done`)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		f.pid(t, "pid")
		cancel(resqued.ErrKilled)
		require.ErrorIs(t, wait(t, done), resqued.ErrKilled)
	})
	t.Run("a command may save its state and ask for another run", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `trap 'exit 75' TERM; echo $$ > pid; while :; do sleep 0.01; done`)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		f.pid(t, "pid")
		cancel(resqued.ErrKilled)
		var requeue *resqued.RequeueError
		require.ErrorAs(t, wait(t, done), &requeue)
	})
	t.Run("a command that ignores TERM gets KILL", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `trap '' TERM; sleep 1000 & echo $! > child; echo $$ > pid; wait; sleep 1000`, killAfter(100*time.Millisecond))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		pid, child := f.pid(t, "pid"), f.pid(t, "child")
		began := time.Now()
		cancel(resqued.ErrKilled)
		err := wait(t, done)
		require.EqualError(t, err, "resqued: job killed: sh: ended by SIGKILL, nothing on stderr")
		require.GreaterOrEqual(t, time.Since(began), 90*time.Millisecond)
		require.True(t, gone(pid) && gone(child))
	})
	t.Run("half of the worker's grace is the limit", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `trap '' TERM; echo $$ > pid; while :; do sleep 1000; done`, func(o *handler.Options, c *resqued.Class) {
			o.KillGrace, c.Command.KillAfter = 200*time.Millisecond, time.Hour
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		f.pid(t, "pid")
		cancel(resqued.ErrKilled)
		require.Error(t, wait(t, done))
	})
	t.Run("who kills the job may give it less", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `trap '' TERM; echo $$ > pid; while :; do sleep 1000; done`, killAfter(time.Hour))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		pid := f.pid(t, "pid")
		cancel(fmt.Errorf("told: %w", brief{resqued.ErrKilled}))
		require.ErrorIs(t, wait(t, done), resqued.ErrKilled)
		require.True(t, gone(pid))
	})
	t.Run("a stopped command is woken to end", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `echo $$ > pid; exec sleep 1000`, killAfter(time.Hour))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		require.NoError(t, unix.Kill(f.pid(t, "pid"), unix.SIGSTOP))
		cancel(resqued.ErrKilled)
		require.EqualError(t, wait(t, done), "resqued: job killed: sh: ended by SIGTERM, nothing on stderr")
	})
	t.Run("the others of the group may take their time", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `(trap 'sleep 0.1; echo done > cleaned; exit' TERM; echo $$ > ready; while :; do sleep 0.01; done) &
			while [ ! -s ready ]; do sleep 0.01; done; echo $$ > pid; exec sleep 1000`, killAfter(time.Hour))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		f.pid(t, "pid")
		cancel(resqued.ErrKilled)
		require.ErrorContains(t, wait(t, done), "ended by SIGTERM")
		require.FileExists(t, f.dir+"/cleaned")
	})
	t.Run("but not more than there is", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `(trap '' TERM; sh -c 'echo $PPID' > child; while :; do sleep 1000; done) &
			while [ ! -s child ]; do sleep 0.01; done; echo $$ > pid; exec sleep 1000`, killAfter(100*time.Millisecond))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := f.start(ctx)
		f.pid(t, "pid")
		child := f.pid(t, "child")
		cancel(resqued.ErrKilled)
		require.ErrorContains(t, wait(t, done), "ended by SIGTERM")
		require.True(t, gone(child))
	})
	t.Run("a timeout goes the same way", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `exec sleep 1000`, func(_ *handler.Options, c *resqued.Class) { c.Timeout = 300 * time.Millisecond })
		err := wait(t, f.start(t.Context()))
		require.ErrorIs(t, err, resqued.ErrTimeout)
		require.EqualError(t, err, "ran longer than 300ms: sh: ended by SIGTERM, nothing on stderr")
	})
}

// brief is a cause that leaves little time.
type brief struct{ error }

func (b brief) Unwrap() error        { return b.error }
func (b brief) Grace() time.Duration { return 100 * time.Millisecond }

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, script string }{
		{"a child in the background", `sleep 1000 & echo $! > pid`},
		{"a child that ignores TERM", `(trap '' TERM; sh -c 'echo $PPID' > pid; while :; do sleep 1000; done) & while [ ! -s pid ]; do sleep 0.01; done`},
		{"a grandchild in a session of its own", `setsid sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done`},
		{"a daemon that forked twice", `setsid sh -c 'sh -c "echo \$\$ > pid; exec sleep 1000" &' ; while [ ! -s pid ]; do sleep 0.01; done`},
		{"a process without an environment in a session of its own", `setsid env -i sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done`},
		{"a daemon without an environment", `(setsid env -i sh -c 'echo $$ > pid; exec sleep 1000' &) ; while [ ! -s pid ]; do sleep 0.01; done`},
		{"a process that only its parent gives away", `setsid sh -c 'setsid prlimit --locks=unlimited env -i sh -c "echo \$\$ > pid; exec sleep 1000" & wait' & while [ ! -s pid ]; do sleep 0.01; done`},
		{"a tree in sessions of its own", `setsid sh -c 'setsid sh -c "setsid sleep 1000 & echo \$\$ > pid; wait" & wait' & while [ ! -s pid ]; do sleep 0.01; done`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, tt.script)
			require.NoError(t, f.run(t.Context()))
			require.True(t, gone(f.pid(t, "pid")))
			require.Empty(t, tagged(t, f.dir), "a process of the job is alive")
		})
		t.Run(tt.name+" of a killed command", func(t *testing.T) {
			t.Parallel()
			f := setup(t, tt.script+"; echo > ready; exec sleep 1000", killAfter(50*time.Millisecond))
			ctx, cancel := context.WithCancelCause(t.Context())
			done := f.start(ctx)
			pid := f.pid(t, "pid")
			f.read(t, "ready")
			cancel(resqued.ErrKilled)
			require.ErrorIs(t, wait(t, done), resqued.ErrKilled)
			require.True(t, gone(pid))
			require.Empty(t, tagged(t, f.dir), "a process of the job is alive")
		})
	}
}

// sibling is a program that makes its parent, which has started the command, the parent of a new
// process in its own session, like clone(2) with CLONE_PARENT.
const sibling = `
import ctypes, os, platform, signal, time
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
if ctypes.CDLL(None).syscall(number, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    os.setsid()
    os.execve("/bin/sh", ["sh", "-c", "echo $$ > pid; exec sleep 1000"], {"PATH": os.environ["PATH"]})
while not (os.path.exists("pid") and os.path.getsize("pid")):
    time.sleep(0.01)
`

func TestNoSiblingIsLeftBehind(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are none")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	if !limited(t) { // other tests have orphans
		return
	}
	f := setup(t, "exec python3 -c '"+sibling+"'")
	require.NoError(t, f.run(t.Context()))
	require.True(t, gone(f.pid(t, "pid")))
	require.Empty(t, tagged(t, f.dir), "a process of the job is alive")
}

// tagged returns the living processes whose working directory is dir, which all processes of a
// fixture's command share.
func tagged(t *testing.T, dir string) (pids []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if cwd, err := os.Readlink("/proc/" + e.Name() + "/cwd"); err == nil && cwd == dir {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

func TestPipeHeldByAStranger(t *testing.T) {
	t.Parallel()
	// Without mark, environment and group, nothing identifies its command; but it cannot hold up
	// the job.
	f := setup(t, `setsid prlimit --locks=unlimited env -i sh -c 'echo $$ > pid; exec /bin/sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done`)
	err := wait(t, f.start(t.Context()))
	pid := f.pid(t, "pid")
	t.Cleanup(func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		require.Eventually(t, func() bool {
			// This process adopts orphans.
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			return gone(pid)
		}, soon, time.Millisecond)
	})
	require.NoError(t, err)
	require.False(t, gone(pid))
}

func TestOwns(t *testing.T) {
	t.Parallel()
	f := setup(t, `echo $$ > pid; exec sleep 1000`)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := f.start(ctx)
	pid := f.pid(t, "pid")
	// The program may be faster than the thread that started it.
	require.Eventually(t, func() bool { return f.Owns(pid) }, soon, time.Millisecond)
	require.False(t, f.Owns(os.Getpid()))
	cancel(resqued.ErrKilled)
	require.Error(t, wait(t, done))
	require.False(t, f.Owns(pid))
}

// Linux kills a child with the thread that started it, and Go ends threads.
func TestCommandsOutliveThreads(t *testing.T) {
	t.Parallel()
	f := setup(t, `echo > "started.$$"; while [ ! -e go ]; do sleep 0.01; done`)
	const n = 16
	var jobs []<-chan error
	for range n {
		jobs = append(jobs, f.start(t.Context()))
	}
	require.Eventually(t, func() bool {
		started, err := filepath.Glob(f.dir + "/started.*")
		return err == nil && len(started) == n
	}, soon, time.Millisecond)
	// All at once, so that every existing thread has one of them.
	var locked, ended sync.WaitGroup
	release := make(chan struct{})
	for range 50 {
		locked.Add(1)
		ended.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			locked.Done()
			<-release
		})
	}
	locked.Wait()
	close(release)
	ended.Wait()
	require.NoError(t, os.WriteFile(f.dir+"/go", nil, 0o600))
	for _, done := range jobs {
		require.NoError(t, wait(t, done))
	}
}

func TestCommandsDieWithTheWorker(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	file := t.TempDir() + "/pid"
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "HANDLER_TEST_WORKER=echo $$ > "+file+"; exec sleep 1000")
	var out strings.Builder
	worker.Stdout = &out
	require.NoError(t, worker.Start())
	f := &fixture{dir: ""}
	f.dir = file[:len(file)-len("/pid")]
	pid := f.pid(t, "pid")
	require.NoError(t, worker.Process.Kill())
	_ = worker.Wait() // it was killed
	require.Empty(t, out.String())
	require.Eventually(t, func() bool {
		// This process may adopt orphans.
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return gone(pid)
	}, soon, time.Millisecond)
}

func TestCommandsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	f := setup(t, `cd "$(mktemp -d "$PWD/XXXXXX")" || exit 1
		setsid sh -c 'echo > here; exec sleep 1000' & sleep 1000 &
		while [ ! -e here ]; do sleep 0.01; done; env -i /bin/sleep 0.05; exit 7`)
	var wg sync.WaitGroup
	results := make(chan error, 40)
	for range 8 {
		wg.Go(func() {
			for range 5 {
				results <- f.run(t.Context())
			}
		})
	}
	// Children started by Go code are left alone, too.
	others := make(chan error, 40)
	wg.Go(func() {
		for range 40 {
			cmd := exec.Command("/bin/sleep", "0.02")
			cmd.Env = []string{}
			others <- cmd.Run()
		}
	})
	wg.Wait()
	close(results)
	close(others)
	for err := range results {
		var failed *handler.CommandError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, 7, failed.ExitCode)
	}
	for err := range others {
		require.NoError(t, err)
	}
	require.Empty(t, tagged(t, f.dir))
}

func BenchmarkCommand(b *testing.B) {
	s, err := handler.New(resqued.New(), handler.Options{Commands: map[string]resqued.Class{
		"Run": {Command: &resqued.Command{Argv: []string{"/bin/true"}}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		if err := s.Run(b.Context(), &resqued.Job{Class: "Run"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGo(b *testing.B) {
	h := resqued.New()
	h.HandleArgs("Run", func(context.Context, resqued.Args) error { return nil })
	s, err := handler.New(h, handler.Options{})
	if err != nil {
		b.Fatal(errors.Join(err, fmt.Errorf("new")))
	}
	job := &resqued.Job{Class: "Run"}
	for b.Loop() {
		if err := s.Run(b.Context(), job); err != nil {
			b.Fatal(err)
		}
	}
}

// A process that ends itself ends its commands first. No job has failed for that.
func TestAbandon(t *testing.T) {
	t.Parallel()
	f := setup(t, `echo $$ > pid; sleep 1000`)
	done := f.start(t.Context())
	pid := f.pid(t, "pid")
	f.Abandon()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	require.Eventually(t, func() bool { return gone(pid) }, soon, time.Millisecond, "its job waits for it")
	select {
	case err := <-done:
		t.Errorf("told: %v", err)
	case <-time.After(50 * time.Millisecond): // as long as nothing happens
	}
	f.Resume()
	require.ErrorContains(t, wait(t, done), "SIGKILL")
}

// A command whose program the system does not open can be killed, and blocks no other.
func TestKillOfACommandThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	proctest.WriteProgram(t, program, []byte("#!/bin/sh\ntouch ran\n"))
	giveBack := proctest.Lease(t, program)
	f := setup(t, "", func(_ *handler.Options, c *resqued.Class) { c.Command.Argv = []string{program} })
	done := f.start(t.Context())
	for name, slow := range map[string]func(c *resqued.Class) context.Context{
		"by its time limit": func(c *resqued.Class) context.Context {
			c.Timeout = 1500 * time.Millisecond
			return t.Context()
		},
		"by its kill": func(*resqued.Class) context.Context {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(1500*time.Millisecond, func() { cancel(resqued.ErrKilled) })
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ctx context.Context
			f := setup(t, "", func(_ *handler.Options, c *resqued.Class) {
				c.Command.Argv = []string{program}
				ctx = slow(c)
			})
			err := wait(t, f.start(ctx))
			require.ErrorContains(t, err, `: start "`+program+`": ended while the system was still opening it: "`+program+`" does not open`)
			require.NoFileExists(t, f.dir+"/ran")
		})
	}
	other := setup(t, "exit 0")
	require.NoError(t, wait(t, other.start(t.Context())))
	proctest.Await(t, soon, func() bool { return f.logs.FilterMessageSnippet("does not begin").Len() == 1 }, "a warning")
	select {
	case err := <-done:
		t.Fatalf("it has ended: %v", err)
	default:
	}
	giveBack()
	require.NoError(t, wait(t, done))
	require.FileExists(t, f.dir+"/ran")
}

// A command has no terminal: one that asks for a password must fail, not be stopped.
func TestCommandsLeadASession(t *testing.T) {
	t.Parallel()
	f := setup(t, `sed 's/.*) //' /proc/$$/stat > stat; echo $$ >> stat`)
	require.NoError(t, f.run(t.Context()))
	text, err := os.ReadFile(f.dir + "/stat")
	require.NoError(t, err)
	fields := strings.Fields(string(text))
	pid := fields[len(fields)-1]
	require.Equal(t, []string{pid, pid}, fields[2:4])
}
