//go:build linux

package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// patience is how long a test waits for what must happen, on a loaded machine.
const patience = 30 * time.Second

// actEnv makes the test binary start a program and wait for it, as a separate process with its
// own limits and signals.
const actEnv = "LAUNCH_TEST_ACT"

func act() {
	signal.Ignore(unix.SIGUSR1)
	signal.Notify(make(chan os.Signal, 1), unix.SIGUSR2)
	l := &Launcher{}
	l.plain.Store(os.Getenv("LAUNCH_TEST_PLAIN") != "")
	p, err := l.Start(Program{
		Argv: []string{"sh", "-c", os.Getenv(actEnv)}, Env: []string{"PATH=" + os.Getenv("PATH")},
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err == nil {
		_, err = p.Wait()
	}
	fmt.Println("acted:", err)
}

// eachWay runs a test for both ways in which programs are started.
func eachWay(t *testing.T, test func(t *testing.T, l *Launcher)) {
	testlevel.Integration(t)
	t.Parallel()
	for name, plain := range map[string]bool{"cloned": false, "forked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &Launcher{}
			l.plain.Store(plain)
			t.Cleanup(l.Close)
			test(t, l)
			require.Equal(t, plain, l.plain.Load(), "the way in which programs are started here")
		})
	}
}

// output runs a program and returns what it writes.
func output(t *testing.T, l *Launcher, program Program) (string, syscall.WaitStatus, error) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	program.Files = append([]*os.File{null, w, w}, program.Files...)
	p, err := l.Start(program)
	_ = w.Close()
	if err != nil {
		return "", 0, err
	}
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	p.AwaitExit()
	status, err := p.Wait()
	return string(text), status, err
}

func TestPrograms(t *testing.T) {
	eachWay(t, func(t *testing.T, l *Launcher) {
		dir := t.TempDir()
		path := "PATH=" + os.Getenv("PATH")
		run := func(t *testing.T, script string, more ...*os.File) string {
			t.Helper()
			text, status, err := output(t, l, Program{Argv: []string{"sh", "-c", script}, Dir: dir, Env: []string{"A=1", path, "B=x=y", "A=2", "LONG=" + strings.Repeat("x", 100_000)}, Files: more})
			require.NoError(t, err)
			require.Zero(t, status, text)
			return strings.TrimSpace(text)
		}
		t.Run("have their arguments, environment and directory", func(t *testing.T) {
			require.Equal(t, "2 x=y 100000 "+dir, run(t, `echo "$A $B ${#LONG} $(pwd)"; exec 9<&-`))
		})
		t.Run("are looked for in their directory if their path is relative", func(t *testing.T) {
			proctest.WriteProgram(t, filepath.Join(dir, "program"), []byte("#!/bin/sh\necho here\n"))
			text, _, err := output(t, l, Program{Argv: []string{"./program"}, Dir: dir})
			require.NoError(t, err)
			require.Equal(t, "here\n", text)
		})
		t.Run("have no other descriptors", func(t *testing.T) {
			if l.plain.Load() {
				t.Skip("these have what is not closed by exec")
			}
			leaked, err := unix.Open(dir, unix.O_RDONLY, 0) // as C code might: not closed by exec
			require.NoError(t, err)
			defer func() { _ = unix.Close(leaked) }()
			file, err := os.Open(os.DevNull)
			require.NoError(t, err)
			defer func() { _ = file.Close() }()
			require.Equal(t, "0 1 2 3 4 5", run(t, `cd /proc/$$/fd; echo [0-9]*`, file, file), "5 is the shell's")
		})
		t.Run("lead a session", func(t *testing.T) {
			fields := strings.Fields(run(t, `sed 's/.*) //' /proc/$$/stat; echo $$`))
			pid := fields[len(fields)-1]
			require.Equal(t, []string{strconv.Itoa(os.Getpid()), pid, pid}, fields[1:4])
		})
		t.Run("block no signal", func(t *testing.T) {
			require.Equal(t, "SigBlk:\t0000000000000000", run(t, `grep SigBlk /proc/self/status`))
		})
		t.Run("tell how they end", func(t *testing.T) {
			_, status, err := output(t, l, Program{Argv: []string{"sh", "-c", "exit 7"}, Env: []string{path}})
			require.NoError(t, err)
			require.Equal(t, 7, status.ExitStatus())
			_, status, err = output(t, l, Program{Argv: []string{"sh", "-c", "kill -9 $$"}, Env: []string{path}})
			require.NoError(t, err)
			require.Equal(t, unix.SIGKILL, status.Signal())
		})
	})
}

// Still knows a process from its start until it is reaped.
func TestStill(t *testing.T) {
	eachWay(t, func(t *testing.T, l *Launcher) {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		require.NoError(t, err)
		defer func() { _ = null.Close() }()
		p, err := l.Start(Program{Argv: []string{"true"}, Files: []*os.File{null, null, null}})
		require.NoError(t, err)
		knows := func() (known bool) {
			l.Still(func(thread int, started func(int) bool) {
				require.NotZero(t, thread)
				require.False(t, started(os.Getpid()))
				known = started(p.PID)
			})
			return known
		}
		require.True(t, knows())
		p.AwaitExit()
		require.True(t, knows())
		_, err = p.Wait()
		require.NoError(t, err)
		require.False(t, knows())
	})
}

func TestNotStarted(t *testing.T) {
	eachWay(t, func(t *testing.T, l *Launcher) {
		dir := t.TempDir()
		file := func(name, text string, mode os.FileMode) string {
			path := filepath.Join(dir, name)
			proctest.WriteProgram(t, path, []byte(text))
			require.NoError(t, os.Chmod(path, mode))
			return path
		}
		for _, tt := range []struct {
			name    string
			program Program
			op      string
			path    string
			want    error
		}{
			{"a name that is nowhere", Program{Argv: []string{"no-such-program"}}, "exec", "no-such-program", exec.ErrNotFound},
			{"a file that is not there", Program{Argv: []string{dir + "/none"}}, "exec", dir + "/none", syscall.ENOENT},
			{"a file that is not there either", Program{Argv: []string{"./none"}, Dir: dir}, "exec", "./none", syscall.ENOENT},
			{"a directory", Program{Argv: []string{dir}}, "exec", dir, nil},
			{"no program", Program{Argv: []string{file("text", "hello\n", 0o755)}}, "exec", dir + "/text", syscall.ENOEXEC},
			{"a directory that is not there", Program{Argv: []string{"true"}, Dir: dir + "/none"}, "chdir", dir + "/none", syscall.ENOENT},
			{"a NUL byte", Program{Argv: []string{"true", "a\x00b"}}, "exec", "true", syscall.EINVAL},
			{"too long", Program{Argv: []string{"true", strings.Repeat("x", 200<<10)}}, "exec", "", syscall.E2BIG},
		} {
			t.Run(tt.name, func(t *testing.T) {
				_, _, err := output(t, l, tt.program)
				var failed *Error
				require.ErrorAs(t, err, &failed)
				require.Equal(t, tt.op, failed.Op)
				if tt.path != "" {
					require.Equal(t, tt.path, failed.Path)
				}
				if tt.want != nil {
					require.ErrorIs(t, err, tt.want)
				}
			})
		}
		t.Run("closed", func(t *testing.T) {
			l := &Launcher{}
			l.Close()
			_, _, err := output(t, l, Program{Argv: []string{"true"}})
			require.ErrorIs(t, err, ErrClosed)
		})
	})
}

// Programs inherit the limits and signals that this process was started with: Go changes them
// for itself alone.
func TestInherited(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	for _, plain := range []string{"", "1"} {
		t.Run("forked="+plain, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sh", "-c", `ulimit -Sn 300; exec "$0"`, os.Args[0])
			cmd.Env = append(os.Environ(), "LAUNCH_TEST_PLAIN="+plain, actEnv+`=ulimit -Sn; grep SigIgn /proc/$$/status; kill -USR1 $$; kill -USR2 $$; echo not reached`)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			lines := strings.Split(string(out), "\n")
			require.Equal(t, "300", lines[0])
			_, mask, _ := strings.Cut(lines[1], "\t")
			ignored, err := strconv.ParseUint(mask, 16, 64)
			require.NoError(t, err)
			require.EqualValues(t, 1<<(unix.SIGUSR1-1), ignored&(1<<(unix.SIGUSR1-1)|1<<(unix.SIGUSR2-1)|1<<(unix.SIGTERM-1)))
			require.Equal(t, []string{"acted: <nil>", ""}, lines[2:])
		})
	}
}

// While the system opens a program, the process continues, and the program can be killed.
func TestSlowOpening(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	if newProcess(t) {
		return
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := &Launcher{}
	t.Cleanup(l.Close)
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	proctest.WriteProgram(t, program, []byte("#!/bin/sh\necho here\n"))
	interpreted := filepath.Join(dir, "interpreted")
	proctest.WriteProgram(t, interpreted, []byte("#!"+program+"\n"))
	for _, path := range []string{program, interpreted} {
		for _, sig := range []unix.Signal{0, unix.SIGTERM, unix.SIGKILL} {
			giveBack := proctest.Lease(t, program)
			r, w, err := os.Pipe()
			require.NoError(t, err)
			p, err := l.Start(Program{Argv: []string{path}, Dir: dir, Files: []*os.File{w, w, w}})
			require.NoError(t, err)
			_ = w.Close()
			proctest.Await(t, patience, func() bool { return p.Opening() == path }, "the opening of %s", path)
			runtime.GC() // stops the world, which nothing may keep going
			text, _, err := output(t, l, Program{Argv: []string{"sh", "-c", "echo other"}})
			require.NoError(t, err)
			require.Equal(t, "other\n", text)
			require.Equal(t, path, p.Opening(), "the lease was given back too early")
			if sig == 0 {
				giveBack()
			} else {
				require.NoError(t, unix.Kill(p.PID, sig))
			}
			p.AwaitExit()
			status, err := p.Wait()
			giveBack()
			require.NoError(t, err)
			read, err := io.ReadAll(r)
			require.NoError(t, err)
			_ = r.Close()
			if sig == 0 {
				require.Zero(t, status)
				require.Equal(t, "here\n", string(read))
				require.Empty(t, p.Opening())
			} else {
				require.Equal(t, sig, status.Signal())
				require.Empty(t, read)
			}
		}
	}
}

// newProcess runs a test in a process of its own. It returns false in that process.
func newProcess(t *testing.T) bool {
	t.Helper()
	testlevel.Integration(t)
	if os.Getenv("LAUNCH_TEST_ALONE") != "" {
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "LAUNCH_TEST_ALONE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	return true
}

// Programs started at the same time do not keep each other's pipes open, and leave nothing
// behind.
func TestManyAtOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, l *Launcher) {
		var wg sync.WaitGroup
		errs := make(chan error, 400)
		for i := range 8 {
			wg.Go(func() {
				for j := range 25 {
					want := fmt.Sprint(i, j)
					text, status, err := output(t, l, Program{Argv: []string{"echo", want}})
					if err == nil && (status != 0 || text != want+"\n") {
						err = errors.New(text)
					}
					errs <- err
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				runtime.GC()
			}
		})
		wg.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
	})
}

// A program that waits costs no thread.
func TestWaitingNeedsNoThread(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	if newProcess(t) {
		return
	}
	l := &Launcher{}
	t.Cleanup(l.Close)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	threads := func() int {
		list, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		return len(list)
	}
	_, _, err = output(t, l, Program{Argv: []string{"true"}})
	require.NoError(t, err)
	before := threads()
	var wg sync.WaitGroup
	var started []*Process
	for range 100 {
		p, err := l.Start(Program{Argv: []string{"sleep", "1000"}, Files: []*os.File{null, null, null}})
		require.NoError(t, err)
		started = append(started, p)
		wg.Go(p.AwaitExit)
	}
	if started[0].handle == nil {
		t.Skip("this kernel has no pidfd")
	}
	proctest.Await(t, patience, func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "[IO wait]") >= 100
	}, "all that wait in Go's poller")
	require.Less(t, threads(), before+20)
	for _, p := range started {
		require.NoError(t, unix.Kill(p.PID, unix.SIGKILL))
	}
	wg.Wait()
	for _, p := range started {
		_, err := p.Wait()
		require.NoError(t, err)
	}
}

// Without a pidfd a thread waits.
func TestWaitingWithoutHandle(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	l := &Launcher{}
	t.Cleanup(l.Close)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	for _, spoil := range []func(p *Process){
		func(p *Process) { _ = p.handle.Close(); p.handle = nil },
		func(p *Process) { _ = p.handle.Close() },
		func(p *Process) {
			_ = p.handle.Close()
			p.handle = os.NewFile(uintptr(must(unix.Dup(int(null.Fd())))), "null")
		},
	} {
		p, err := l.Start(Program{Argv: []string{"sleep", "0.05"}, Files: []*os.File{null, null, null}})
		require.NoError(t, err)
		spoil(p)
		p.AwaitExit()
		var info unix.Siginfo
		require.NoError(t, unix.Waitid(unix.P_PID, p.PID, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil))
		require.NotZero(t, info.Signo, "it still runs")
		status, err := p.Wait()
		require.NoError(t, err)
		require.Zero(t, status)
	}
}

func must(fd int, err error) int {
	if err != nil {
		panic(err)
	}
	return fd
}
