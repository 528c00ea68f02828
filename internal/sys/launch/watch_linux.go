package launch

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes are those of a process that is forked. The kernel writes its pidfd there.
func (p *Process) attributes() *syscall.SysProcAttr {
	p.forked = -1
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL, PidFD: &p.forked}
}

// watch has Go's poller report the end of the process.
func (p *Process) watch() {
	if p.memory.list == nil {
		p.pidfd = int32(p.forked)
	}
	if p.pidfd < 0 {
		return
	}
	// With kernels before 5.3 it always seems to have ended; AwaitExit knows.
	_ = unix.SetNonblock(int(p.pidfd), true)
	p.handle = os.NewFile(uintptr(p.pidfd), "pidfd")
}

// unwatch ends that.
func (p *Process) unwatch() {
	if p.handle != nil {
		_ = p.handle.Close()
	}
}

func (p *Process) awaitExit() {
	if p.handle != nil {
		if conn, err := p.handle.SyscallConn(); err == nil {
			_ = conn.Read(ended)
		}
	}
	// A thread waits, if that was too early.
	AwaitExit(p.PID)
}

// AwaitExit blocks, with its thread, until a child process has ended. It does not reap it.
func AwaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// ended reports whether the process of a pidfd has ended, or that cannot be asked so: poll
// fails where this process may have no files at all.
func ended(pidfd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err != nil || n > 0 && poll[0].Revents&unix.POLLIN != 0
}
