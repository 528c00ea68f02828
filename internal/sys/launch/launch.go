// Package launch starts programs without waiting for their exec.
//
// The standard library forks as vfork does: the calling thread stands still until the kernel has opened the
// program. That can take minutes: a lease on the file, a file server that does not answer, a virus scanner. The
// thread keeps its P meanwhile, and a garbage collection that stops the world waits for that P. So one slow exec
// stops a whole worker process, however many processors it has; TestSlowExec shows it.
//
// Here the new process shares this one's memory as well, but no thread waits for it. It runs a list of system
// calls that was written before, without a stack and without any Go code, and its results are read when it has
// ended. A start that hangs is then a process like any other: it has a number, and can be killed.
//
// Without assembly for the platform (package raw), or if the kernel refuses, programs start as by the standard
// library.
package launch

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrClosed says that a Launcher starts nothing any more.
var ErrClosed = errors.New("programs are no longer started")

// errNoClone says that programs have to be started in another way.
var errNoClone = &Error{Op: "clone", Err: syscall.ENOSYS}

// Program says what to start.
type Program struct {
	// Argv names the program, which is looked for on the PATH of this process if its name
	// has no slash, and its arguments.
	Argv []string
	// Env is its whole environment; the last one of a name counts.
	Env []string
	// Dir is its working directory; empty: that of this process.
	Dir string
	// Files are its descriptors from 0 on. It has no others.
	Files []*os.File
	// Locks, if not 0, is its soft limit of file locks; see package mark.
	Locks uint64
}

// Error says that a program could not be started, and at what.
type Error struct {
	// Op is what failed: "chdir", "exec" or "clone".
	Op string
	// Path is the directory, or the program.
	Path string
	Err  error
}

// Error returns what failed.
func (e *Error) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }

// Unwrap returns what the system said.
func (e *Error) Unwrap() error { return e.Err }

// Launcher starts programs from one thread, which lives as long as the Launcher: the kernel
// kills a program with the thread that started it, not with the process, and Go ends threads
// when it likes. A start takes that thread some ten microseconds, however long the program
// takes to begin.
//
// The goroutine of that thread is started by the first start and ended by Close.
type Launcher struct {
	// Setup, if any, runs on it first.
	Setup func()

	mu       sync.RWMutex
	once     sync.Once
	requests chan request
	stopped  chan struct{}
	closed   bool
	// plain is set where programs have to be started as by the standard library.
	plain atomic.Bool

	// family is held while a process is started or reaped.
	family sync.Mutex
	// thread is the kernel's number of that thread, 0 where it has none to be asked about.
	thread  int
	started map[int]bool // and not reaped, by number
}

type request struct {
	launch func() error
	reply  chan error
}

// Start starts a program as the leader of a session of its own, which dies with this
// process. It does not wait until the program has begun. Whoever calls it must call Wait.
func (l *Launcher) Start(program Program) (*Process, error) {
	p := &Process{program: program, launcher: l}
	err := p.prepare()
	if err == nil && !l.plain.Load() {
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

// Close ends the goroutine. Call it when nothing is started any more.
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

// run runs a function on the thread.
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

// Still calls f while no process is started and none is reaped, with the number of the thread
// that starts them, 0 if there is none, and with what reports of a process whether it was started
// here and not reaped. A process that is started as by the standard library may be missing for
// a moment.
func (l *Launcher) Still(f func(thread int, started func(pid int) bool)) {
	l.family.Lock()
	defer l.family.Unlock()
	f(l.thread, func(pid int) bool { return l.started[pid] })
}

// Process is a program that was started.
type Process struct {
	// PID is its number. It leads its session and its process group.
	PID int

	program  Program
	launcher *Launcher
	exited   atomic.Bool
	start    // what belongs to how it was started
}

// Signal sends a signal to the group of the process, which must not have been waited for.
func (p *Process) Signal(sig syscall.Signal) {
	// ESRCH and EPERM: there is no such process, or it may not be signalled.
	if errors.Is(unix.Kill(-p.PID, sig), unix.ESRCH) {
		// It does not lead its group yet: Start has not waited for that.
		_ = unix.Kill(p.PID, sig)
	}
}

// AwaitExit blocks until the process has ended. It does not reap it.
func (p *Process) AwaitExit() {
	if !p.exited.Load() {
		p.awaitExit()
		p.exited.Store(true)
	}
}

// Wait waits for the end of the process, reaps it, and returns how it ended. It fails with
// an *Error if the program has never begun.
func (p *Process) Wait() (syscall.WaitStatus, error) {
	p.AwaitExit()
	status, err := p.reap()
	p.unwatch()
	if err != nil {
		return status, err
	}
	// Not before: the list and what it refers to are the process's until it has ended.
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
