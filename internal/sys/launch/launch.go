// Package launch starts programs without waiting for their exec.
//
// The standard library forks like vfork: the calling thread is blocked until the kernel has
// opened the program. A lease on the file, a slow file server or a virus scanner can make that
// minutes. The thread keeps its P, and a garbage collection that stops the world waits for that
// P. So one slow exec stops a whole worker process, whatever its number of processors;
// TestSlowExec shows it.
//
// Here the new process shares this one's memory, too, but no thread waits for it. It runs a list
// of system calls, prepared in advance, without a stack or any Go code. The results are read
// when it has ended. A start that hangs is a process like any other: it has a pid and can be
// killed.
//
// Without assembly for the platform (package raw), or if the kernel refuses, the standard
// library starts programs.
package launch

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrClosed means that the Launcher starts nothing any more.
var ErrClosed = errors.New("programs are no longer started")

// errNoClone means that the standard library has to start programs.
var errNoClone = &Error{Op: "clone", Err: syscall.ENOSYS}

// Program says what to start.
type Program struct {
	// Argv is the program and its arguments. A name without a slash is looked up on this
	// process's PATH.
	Argv []string
	// Env is the whole environment; the last variable of a name counts.
	Env []string
	// Dir is the working directory; empty = this process's.
	Dir string
	// Files are its only descriptors, from 0 on.
	Files []*os.File
	// Locks, if not 0, is the soft limit of file locks; see package mark.
	Locks uint64
}

// Error says that a program could not be started, and which step failed.
type Error struct {
	// Op is the step: "chdir", "exec" or "clone".
	Op   string
	Path string
	Err  error
}

func (e *Error) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Launcher starts programs from one thread that lives as long as the Launcher. The kernel kills
// a program with the thread that started it, not with the process, and Go ends threads as it
// likes. A start takes the thread some ten microseconds, however long the program takes to begin.
// The first start starts that thread's goroutine, and Close ends it.
type Launcher struct {
	// Setup, if not nil, runs first on the thread.
	Setup func()

	mu       sync.RWMutex
	once     sync.Once
	requests chan request
	stopped  chan struct{}
	closed   bool
	// plain: the standard library has to start programs.
	plain atomic.Bool

	// family is held while a process is started or reaped.
	family sync.Mutex
	// thread is the thread's kernel id; 0 if it cannot be known.
	thread  int
	started map[int]bool // by pid; not reaped yet
}

type request struct {
	launch func() error
	reply  chan error
}

// Start starts a program as the leader of its own session, which dies with this process. It does
// not wait until the program has begun. The caller must call Wait.
func (l *Launcher) Start(program Program) (*Process, error) {
	p := &Process{program: program, launcher: l}
	for _, text := range slices.Concat(program.Argv, program.Env, []string{program.Dir}) {
		if strings.ContainsRune(text, 0) { // no program can be given it
			return nil, &Error{Op: "exec", Path: program.Argv[0], Err: syscall.EINVAL}
		}
	}
	p.prepare()
	var err error
	if !l.plain.Load() {
		err = l.run(p.clone)
	}
	if errors.Is(err, errNoClone) {
		l.plain.Store(true)
		err = nil
	}
	if err == nil && p.PID == 0 {
		err = l.run(p.fork)
	}
	if err != nil {
		return nil, err
	}
	p.watch()
	return p, nil
}

// Close ends the goroutine. Call it last.
func (l *Launcher) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.requests != nil {
		close(l.requests)
		<-l.stopped
		l.requests = nil
	}
}

func (l *Launcher) run(launch func() error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return ErrClosed
	}
	l.once.Do(func() {
		l.requests, l.stopped = make(chan request), make(chan struct{})
		go l.serve()
	})
	r := request{launch: launch, reply: make(chan error, 1)}
	l.requests <- r
	return <-r.reply
}

func (l *Launcher) serve() {
	defer close(l.stopped)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.family.Lock()
	l.thread, l.started = thread(), map[int]bool{}
	l.family.Unlock()
	if l.Setup != nil {
		l.Setup()
	}
	for r := range l.requests {
		r.reply <- r.launch()
	}
}

// Still calls f while no process is being started or reaped. thread is the thread that starts
// processes, 0 if unknown; started reports whether this Launcher started a process and has not
// reaped it. A process started by the standard library may be missing for a moment.
func (l *Launcher) Still(f func(thread int, started func(pid int) bool)) {
	l.family.Lock()
	defer l.family.Unlock()
	f(l.thread, func(pid int) bool { return l.started[pid] })
}

// Process is a program that was started.
type Process struct {
	// PID also is its session and its process group.
	PID int

	program  Program
	launcher *Launcher
	exited   atomic.Bool
	start    // depends on how it was started
}

// Signal signals the group of the process, which must not have been reaped.
func (p *Process) Signal(sig syscall.Signal) {
	// Ignored: ESRCH and EPERM.
	if errors.Is(unix.Kill(-p.PID, sig), unix.ESRCH) {
		// It does not lead its group yet: Start does not wait for that.
		_ = unix.Kill(p.PID, sig)
	}
}

// AwaitExit blocks until the process has ended, and does not reap it.
func (p *Process) AwaitExit() {
	if !p.exited.Load() {
		p.awaitExit()
		p.exited.Store(true)
	}
}

// Wait waits for the end of the process, reaps it and returns its status. It fails with an
// *Error if the program never began.
func (p *Process) Wait() (syscall.WaitStatus, error) {
	p.AwaitExit()
	status, err := p.reap()
	p.unwatch()
	if err != nil {
		return status, err
	}
	// Only now: until its end, the list and what it refers to belong to the process.
	return status, p.failure()
}

func (p *Process) reap() (status syscall.WaitStatus, err error) {
	p.launcher.family.Lock()
	defer p.launcher.family.Unlock()
	delete(p.launcher.started, p.PID)
	for {
		if _, err = syscall.Wait4(p.PID, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			return status, err
		}
	}
}
