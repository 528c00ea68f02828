package launch

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The standard library starts programs, and nothing kills them when this process dies; they
// notice it by the files that they inherit.

type start struct{}

func (p *Process) prepare() {}

func (p *Process) clone() error { return errNoClone }

func thread() int { return 0 }

// MarksItself reports false: no process has a mark.
func (p *Process) MarksItself() bool { return false }

func (p *Process) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func (p *Process) watch()   {}
func (p *Process) unwatch() {}

func (p *Process) awaitExit() { AwaitExit(p.PID) }

// AwaitExit blocks, with its thread, until a child process has ended, and does not reap it.
func AwaitExit(pid int) {
	queue, err := unix.Kqueue()
	for ; err != nil; queue, err = unix.Kqueue() {
		time.Sleep(10 * time.Millisecond) // no descriptor is free
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

// Begun reports true: Start waits for the program.
func (p *Process) Begun() bool { return true }

// Opening returns "": Start waits for the program.
func (p *Process) Opening() string { return "" }

// failure returns nil: Start returns it.
func (p *Process) failure() error { return nil }
