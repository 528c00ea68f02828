package proc

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/memfile"
	"github.com/resqued/resqued/internal/sys/procfs"
)

const (
	// titleSize is the space for a process title, in bytes.
	titleSize = 160

	connFD   = 3
	configFD = 4
	// FirstFile is the descriptor of Spec.Files[0] in the process, which must make them
	// close-on-exec.
	FirstFile = 5
)

// Spec says what to spawn.
type Spec struct {
	// Proc is the process id for RESQUED_PROC (Identity.Child).
	Proc string
	// Title is what ps shows until the process sets its own.
	Title string
	// Config is passed in memory, never in argv or the environment.
	Config []byte
	// Env is the process's environment; nil = this process's. Variables for this process's own
	// supervision are left out.
	Env []string
	// Files are further descriptors of the process, from FirstFile on.
	Files []*os.File
	// DieWithMaster: the kernel kills the process when the master dies. Otherwise the process
	// sees io.EOF on its Conn and decides.
	DieWithMaster bool
}

// The kernel sends a parent-death signal when the parent *thread* ends. The main thread lives as
// long as the process, so the main goroutine stays on it. Only an init function can arrange
// that.
func init() { lockMainThread() }

// Spawn starts a worker process from this process's own binary. With spec.DieWithMaster it must be
// called on the main goroutine of the program, and fails elsewhere. The caller must call Wait.
func Spawn(spec Spec) (*Child, error) {
	child, err := spawn(spec)
	if err != nil {
		return nil, fmt.Errorf("spawn %s: %w", spec.Proc, err)
	}
	return child, nil
}

func spawn(spec Spec) (*Child, error) {
	// Without a terminal: a background process that reads one is stopped, and neither ends nor
	// beats.
	attr := &syscall.SysProcAttr{Setsid: true}
	if spec.DieWithMaster {
		if err := dieWithParent(attr); err != nil {
			return nil, err
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	config, err := memfile.Sealed("resqued-config", spec.Config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = config.Close() }()
	conn, theirs, err := connected()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	program, err := Executable()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	p, err := os.StartProcess(program, []string{padded(spec.Title)}, &os.ProcAttr{
		Env:   spec.environ(),
		Files: append([]*os.File{null, os.Stdout, os.Stderr, theirs, config}, spec.Files...),
		Sys:   attr,
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	c := &Child{process: p, Conn: conn, sweeper: newSweeper(spec.Proc)}
	c.sweeper.Started(p.Pid)
	return c, nil
}

func (s Spec) environ() []string {
	base := s.Env
	if base == nil {
		base = os.Environ()
	}
	env := make([]string, 0, len(base)+2)
	for _, v := range base {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case name == "NOTIFY_SOCKET", name == procfs.RoleEnv, name == procfs.ProcEnv,
			strings.HasPrefix(name, "WATCHDOG_"), strings.HasPrefix(name, "LISTEN_"):
		default:
			env = append(env, v)
		}
	}
	return append(env, procfs.RoleEnv+"="+procfs.WorkerRole, procfs.ProcEnv+"="+s.Proc)
}

// Child is a worker process, for its master.
type Child struct {
	*Conn
	process *os.Process
	sweeper *procfs.Sweeper
	once    sync.Once
	exit    Exit
}

// PID returns the operating system's process id.
func (c *Child) PID() int { return c.process.Pid }

// Kill sends SIGKILL through a process handle, which cannot hit a later process with the same
// pid.
func (c *Child) Kill() error { return c.process.Kill() }

// Wait waits for the end of the process. It may be called more than once.
func (c *Child) Wait() Exit {
	c.once.Do(func() {
		c.exit = exitOf(c.process.Wait())
		c.sweeper.Reaped()
	})
	return c.exit
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code; -1 if a signal ended it.
	Code int
	// Signal ended the process; 0 if it exited.
	Signal syscall.Signal
	// MaxRSS is the largest resident size, in bytes, of the process or of any child that it had
	// waited for: the kernel does not separate them.
	MaxRSS int64
	// Err: the end could not be observed.
	Err error
}

// String describes the exit, as shown in the log and in failure records.
func (e Exit) String() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.Signal != 0:
		return "signal " + unix.SignalName(e.Signal)
	default:
		return fmt.Sprintf("exit code %d", e.Code)
	}
}

func exitOf(state *os.ProcessState, err error) Exit {
	if err != nil {
		return Exit{Code: -1, Err: fmt.Errorf("wait: %w", err)}
	}
	e := Exit{Code: state.ExitCode()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal()
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok && usage != nil {
		e.MaxRSS = usage.Maxrss * maxRSSUnit
	}
	return e
}
