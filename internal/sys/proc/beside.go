package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// besideEnv marks a master that another one has started to replace it. The socket between
	// them is the first descriptor after the standard ones.
	besideEnv = "RESQUED_BESIDE"
	// probePatience is how long a binary may take to report its protocol.
	probePatience = 10 * time.Second
	// maxReason bounds the quoted output of a binary that does not work, in bytes.
	maxReason = 2000
)

// TakesOver is the line that a binary prints for ProbeArgs if it can replace a running master
// that speaks BesideProtocol.
var TakesOver = fmt.Sprintf("resqued-handover %d", BesideProtocol)

// ProbeArgs are the arguments with which a master asks a binary whether it can replace it.
var ProbeArgs = []string{"upgrade", "--protocol"}

// Invocation is how a program was started, so that it can be started again.
type Invocation struct {
	// Path is the absolute path of the program as it was called. Symbolic links are not
	// resolved, so that a link to a newer release leads there.
	Path string
	// Args are the arguments, including the program's name.
	Args []string
	Env  []string
	// Dir is the working directory, by the shell's name for it.
	Dir string
}

// Invoked returns how this process was started. It fails where no process can be started next to
// it. Call it early: the working directory and the environment may change.
func Invoked() (Invocation, error) {
	if _, err := sibling(); err != nil {
		return Invocation{}, err
	}
	return Started()
}

// Started is Invoked for callers that start child processes.
func Started() (Invocation, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Invocation{}, fmt.Errorf("the working directory: %w", err)
	}
	i := Invocation{Args: slices.Clone(os.Args), Dir: dir}
	for _, v := range os.Environ() {
		// WATCHDOG_PID names this process; without it WATCHDOG_USEC applies to any.
		if name, _, _ := strings.Cut(v, "="); name != besideEnv && name != "WATCHDOG_PID" {
			i.Env = append(i.Env, v)
		}
	}
	if i.Path, err = invokedPath(dir); err != nil {
		return Invocation{}, err
	}
	return i, nil
}

// invokedPath returns the path by which this program was called. argv[0] need not be the
// program's name; then it is the file's path.
func invokedPath(dir string) (string, error) {
	if len(os.Args) > 0 {
		path := os.Args[0]
		if !strings.Contains(path, "/") {
			path, _ = exec.LookPath(path)
		}
		if path != "" && !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if same, err := isSelf(path); err == nil && same {
			return path, nil
		}
	}
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the program's own path: %w", err)
	}
	return path, nil
}

// Changed reports whether the path now has another file than the one that this process runs. The
// kernel prevents writes to the running file and reuse of its inode.
func (i Invocation) Changed() (bool, error) {
	same, err := isSelf(i.Path)
	if err != nil {
		return false, fmt.Errorf("the program that this daemon was started from: %w", err)
	}
	return !same, nil
}

// Probe returns an error if the program at the path cannot replace this one. It starts nothing
// of a daemon, so an unfit program touches no job.
func (i Invocation) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.Path, ProbeArgs...)
	cmd.Env, cmd.Dir = slices.DeleteFunc(slices.Clone(i.Env), speaksToManager), i.Dir
	var stdout, stderr cut
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s does not answer within %s%s", i.Path, probePatience, said(stderr))
	case err != nil:
		return fmt.Errorf("%s does not work: %w%s", i.Path, err, said(stderr))
	case !slices.Contains(strings.Split(string(stdout), "\n"), TakesOver):
		return fmt.Errorf("%s cannot take over a running daemon: it does not answer %q to %q; restart the daemon to change to it",
			i.Path, TakesOver, strings.Join(ProbeArgs, " "))
	}
	return nil
}

// speaksToManager: a probe must not talk to the service manager.
func speaksToManager(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") }

// cut keeps the first maxReason bytes that are written to it.
type cut []byte

func (c *cut) Write(p []byte) (int, error) {
	*c = append(*c, p[:min(len(p), maxReason-len(*c))]...)
	return len(p), nil
}

func said(text []byte) string {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return ""
	}
	return ": " + string(text)
}

// Beside is the other one of two masters.
type Beside struct {
	*Conn
	pid     int
	process *os.Process
	once    sync.Once
}

// ErrFirst means that the first process of a PID namespace cannot be replaced.
var ErrFirst = errors.New("this daemon is process 1 of its container, which ends with it: replace the container")

// Start starts the program as a master that replaces this one. The new process is a child of
// this process's parent: a service manager sees its end, it outlives this process unchanged, and
// no master mistakes another's children for its own.
func (i Invocation) Start() (*Beside, error) {
	if os.Getpid() == 1 {
		return nil, ErrFirst
	}
	attr, err := sibling()
	if err != nil {
		return nil, err
	}
	conn, theirs, err := connected()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	p, err := os.StartProcess(i.Path, i.Args, &os.ProcAttr{
		Dir: i.Dir, Env: append(slices.Clone(i.Env), besideEnv+"=1"),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, theirs},
		Sys:   attr,
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Beside{Conn: conn, pid: p.Pid, process: p}, nil
}

// InheritBeside takes over the socket to the master that started this one to replace it. It
// returns nil in any other process. Call it once, before anything is started.
func InheritBeside() (*Beside, error) {
	if os.Getenv(besideEnv) == "" {
		return nil, nil
	}
	if err := os.Unsetenv(besideEnv); err != nil {
		return nil, fmt.Errorf("inherit: %w", err)
	}
	syscall.CloseOnExec(connFD)
	pid, err := creator(connFD)
	if err != nil {
		return nil, fmt.Errorf("inherit: file descriptor %d is not the socket of a master: %w", connFD, err)
	}
	conn, err := inheritConn()
	if err != nil {
		return nil, fmt.Errorf("inherit: file descriptor %d: %w", connFD, err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("inherit: the master %d: %w", pid, err)
	}
	return &Beside{Conn: conn, pid: pid, process: p}, nil
}

// PID returns the process id of the other master.
func (b *Beside) PID() int { return b.pid }

// Kill sends it SIGKILL, through a process handle where the kernel has one.
func (b *Beside) Kill() error { return b.process.Kill() }

// Close closes the socket; a Recv under way returns io.EOF.
func (b *Beside) Close() error {
	err := b.Conn.Close()
	b.once.Do(func() { _ = b.process.Release() })
	return err
}
