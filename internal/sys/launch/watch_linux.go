package launch

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes are for a forked process. The kernel writes its pidfd to forked.
func (p *Process) attributes() *syscall.SysProcAttr {
	p.forked = -1
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL, PidFD: &p.forked}
}

// watch registers the end of the process with Go's poller.
func (p *Process) watch() {
	if p.memory.list == nil {
		p.pidfd = int32(p.forked)
	}
	if p.pidfd < 0 {
		return
	}
	// On kernels before 5.3 it always looks ended; AwaitExit still waits.
	_ = unix.SetNonblock(int(p.pidfd), true)
	p.handle = os.NewFile(uintptr(p.pidfd), "pidfd")
}

// unwatch closes the pidfd.
func (p *Process) unwatch() {
	if p.handle != nil {
		_ = p.handle.Close()
	}
}

func (p *Process) awaitExit() {
	if p.handle != nil {
		if conn, err := p.handle.SyscallConn(); err == nil {
			_ = conn.Read(Ended)
		}
	}
	// Blocks only if the poller was early.
	AwaitExit(p.PID)
}

// AwaitExit blocks, with its thread, until a child process has ended, and does not reap it.
func AwaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Ended reports whether a pidfd's process has ended, or poll fails, as it does if this process
// may have no files.
func Ended(pidfd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(poll, 0)
	}
	return err != nil || n > 0 && poll[0].Revents&unix.POLLIN != 0
}
