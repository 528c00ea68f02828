package launch

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Programs are started as by the standard library, and nothing kills them when this process
// dies; what they inherit of its files tells them.

// start is what this package knows of a process besides its number: nothing.
type start struct{}

// prepare refuses what no program can be given.
func (p *Process) prepare() error {
	for _, list := range [][]string{p.program.Argv, p.program.Env, {p.program.Dir}} {
		for _, text := range list {
			if strings.ContainsRune(text, 0) {
				return &Error{Op: "exec", Path: p.program.Argv[0], Err: syscall.EINVAL}
			}
		}
	}
	return nil
}

func (p *Process) clone() error { return errNoClone }

// thread returns 0: nothing can be asked about a thread.
func thread() int { return 0 }

// MarksItself reports false: no process has a mark.
func (p *Process) MarksItself() bool { return false }

func (p *Process) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func (p *Process) watch()   {}
func (p *Process) unwatch() {}

func (p *Process) awaitExit() { AwaitExit(p.PID) }

// AwaitExit blocks, with its thread, until a child process has ended. It does not reap it.
func AwaitExit(pid int) {
	queue, err := unix.Kqueue()
	for ; err != nil; queue, err = unix.Kqueue() {
		time.Sleep(10 * time.Millisecond) // this process may open no more files
	}
	defer func() { _ = unix.Close(queue) }()
	unix.CloseOnExec(queue)
	var change unix.Kevent_t
	unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change.Fflags = unix.NOTE_EXIT
	var event [1]unix.Kevent_t
	changes := []unix.Kevent_t{change}
	for {
		// ESRCH: it has ended already.
		n, err := unix.Kevent(queue, changes, event[:], nil)
		if !errors.Is(err, unix.EINTR) && (err != nil || n > 0) {
			return
		}
	}
}

// Begun reports whether nothing is waited for any more. Here Start waits for it.
func (p *Process) Begun() bool { return true }

// Opening returns nothing: Start waits for it.
func (p *Process) Opening() string { return "" }

// failure returns nil: Start tells it.
func (p *Process) failure() error { return nil }
