//go:build linux

package procfs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// The test binary plays three parts: it runs the tests, it is the worker process that they
// start, and it is a whole program that a test can kill.
const partEnv = "PROCFS_TEST_PART"

// init keeps TestMain on the main thread, for parts that end it or use others.
func init() {
	if part := os.Getenv(partEnv); part == "headless" || part == "orphan" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(RoleEnv) == WorkerRole {
		os.Exit(workerPart())
	}
	switch os.Getenv(partEnv) {
	case "strays":
		os.Exit(straysPart())
	case "orphan":
		ended := make(chan int)
		go func() { ended <- orphanPart() }()
		os.Exit(<-ended)
	case "sweep":
		os.Exit(sweepPart())
	case "end":
		os.Exit(endPart())
	case "view":
		os.Exit(viewPart())
	case "group":
		os.Exit(groupPart())
	}
	goleak.VerifyTestMain(m)
}

// workerPart is a worker process. It does without package proc: this package knows only
// processes.
func workerPart() int {
	// Commands and helpers that this process starts are not workers.
	_ = os.Unsetenv(RoleEnv)
	_ = mark.Set(os.Getpid(), mark.Worker(os.Getenv(ProcEnv)))
	var started [][]string
	switch os.Getenv(partEnv) {
	case "tree":
		// One child in a session of its own, with a child that the shell leaves
		// behind, and one without any environment.
		started = [][]string{
			{"setsid", "sh", "-c", "sleep 1000 & sleep 1000"},
			{"env", "-i", "sleep", "1000"},
		}
	case "tagged tree":
		started = [][]string{{"setsid", "sh", "-c", "sleep 1000 & sleep 1000"}}
	case "bare tree":
		// Without environment, in sessions of their own, one of them without a parent.
		started = [][]string{{"setsid", "env", "-i", "sh", "-c", "setsid sleep 1000 & (setsid sleep 1000 &) ; exec sleep 1000"}}
	case "headless":
		runtime.GOMAXPROCS(2) // the first thread takes one with it
		go func() {
			fmt.Println("hello")
			select {}
		}()
		// The main thread ends; the process lives on.
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	case "exit":
		fmt.Println("hello")
		return 3
	}
	for _, argv := range started {
		if err := exec.Command(argv[0], argv[1:]...).Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Println("hello")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 7
}

// worker is a worker process, for its master.
type worker struct {
	*exec.Cmd
	stdin   io.Closer
	sweeper *Sweeper
	once    sync.Once
}

// startWorker starts the worker process name and returns when its children run. master is
// NewSweeper's.
func startWorker(name, part string, master func() bool) (*worker, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), partEnv+"="+part, RoleEnv+"="+WorkerRole, ProcEnv+"="+name)
	cmd.SysProcAttr, cmd.Stderr = &syscall.SysProcAttr{Setsid: true}, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cmd.Stdout = w
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return nil, err
	}
	c := &worker{Cmd: cmd, stdin: stdin, sweeper: NewSweeper(name, master)}
	c.sweeper.Started(cmd.Process.Pid)
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "hello\n" {
		c.kill()
		return nil, fmt.Errorf("%s: %q: %w", part, line, err)
	}
	return c, nil
}

// found returns the processes that a sweep would kill.
func (w *Sweeper) found() (pids []int, err error) {
	_, _, err = w.sweep.look(func(id ID) { pids = append(pids, id.PID) })
	slices.Sort(pids)
	return slices.Compact(pids), err
}

func spawn(t *testing.T, name, part string) *worker {
	t.Helper()
	testlevel.Integration(t)
	c, err := startWorker(name, part, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.kill()
		_, _ = NewSweeper(name, nil).Sweep(context.Background())
	})
	return c
}

func (c *worker) PID() int { return c.Process.Pid }

// wait waits for its end.
func (c *worker) wait() syscall.WaitStatus {
	c.once.Do(func() {
		_ = c.Wait()
		c.sweeper.Reaped()
	})
	return c.ProcessState.Sys().(syscall.WaitStatus)
}

// kill kills it and waits for its end.
func (c *worker) kill() {
	_ = c.Process.Kill()
	c.wait()
}

// orphanPart reports whether an orphan is a child of the main thread, and of the thread that has
// started its parent.
func orphanPart() int {
	if err := Subreaper(); err != nil {
		fmt.Println(err)
		return 1
	}
	runtime.LockOSThread() // not the first thread: that is the main goroutine's
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	out, err := exec.Command("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil || thread == os.Getpid() {
		fmt.Println(err, thread)
		return 1
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	first, err := ThreadChildren(os.Getpid())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	other, err := ThreadChildren(thread)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = unix.Kill(orphan, unix.SIGKILL) // before the test has its answer, and ends this process
	fmt.Println(slices.Contains(first, orphan), slices.Contains(other, orphan))
	s := Strays{}
	for s.ReapOrphans() == 0 {
	}
	return 0
}

// straysPart reaps as eagerly as it can while commands of its own come and go.
func straysPart() int {
	if err := Subreaper(); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	var lost, wanted int
	var group sync.WaitGroup
	reaped := make(chan int)
	go func() {
		s := Strays{}
		n := 0
		for ctx.Err() == nil || n < wanted {
			n += s.Reap() + s.ReapOrphans()
		}
		reaped <- n
	}()
	var mu sync.Mutex
	for range 4 {
		group.Go(func() {
			for range 25 {
				// The shell leaves an orphan behind.
				if err := exec.Command("sh", "-c", "true &").Run(); err != nil {
					mu.Lock()
					lost++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	wanted = 100
	cancel()
	fmt.Println(lost, <-reaped)
	return 0
}

// sweepPart is a master that has two worker processes with a tree each. It ends one
// of them and sweeps after it.
func sweepPart() int {
	if Subreaper() != nil {
		return 1
	}
	const dead, other = "dead", "other"
	master := func() bool { return true }
	for _, name := range []string{dead, other} {
		c, err := startWorker(unique(name), "tree", master)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer func() {
			// While it lives: later, a process without environment cannot be assigned to it.
			_, _ = NewSweeper(unique(name), master).Sweep(context.Background())
			c.wait()
		}()
	}
	count := func(name string) (n int) {
		found, _ := NewSweeper(unique(name), master).found()
		return len(found)
	}
	for count(dead) != 5 || count(other) != 5 {
		<-time.After(time.Millisecond)
	}
	s, stranger := NewSweeper(unique(dead), master), NewSweeper(unique(dead), func() bool { return false })
	killed, err := s.Sweep(context.Background())
	_, own, _ := s.from()
	_, all, _ := stranger.from()
	fmt.Println(own, all, killed, err, count(dead), count(other))
	return 0
}

// endPart is a process that ends its descendants and lives on.
func endPart() int {
	if Subreaper() != nil {
		return 1
	}
	for _, argv := range [][]string{{"setsid", "sh", "-c", "sleep 1000 & env -i sleep 1000"}, {"env", "-i", "sleep", "1000"}} {
		if err := exec.Command(argv[0], argv[1:]...).Start(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	living := func() (n int) {
		found, _ := Descendants(nil)
		return len(found)
	}
	for living() != 4 {
		<-time.After(time.Millisecond)
	}
	EndDescendants()
	for living() != 0 {
		<-time.After(time.Millisecond)
	}
	fmt.Println("alone")
	return 0
}

// start plays one of the parts above as a process of its own.
func start(t *testing.T, part string, env ...string) *proctest.Part {
	t.Helper()
	return proctest.StartPart(t, append(env, partEnv+"="+part)...)
}
