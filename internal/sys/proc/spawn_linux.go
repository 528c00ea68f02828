package proc

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// packets is the type of the control socket.
	packets = unix.SOCK_SEQPACKET
	// sendFlags: do not wait for room, and no SIGPIPE if the other side is gone.
	sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	// maxRSSUnit is what the kernel counts memory in, in bytes.
	maxRSSUnit = 1 << 10
)

// Executable names this process's own binary, even if it was renamed, replaced or deleted: the
// kernel resolves the name in the child, which still runs the master's inode. So a deploy never
// mixes versions.
func Executable() (string, error) { return "/proc/self/exe", nil }

// dieWithParent makes the kernel kill a process when its parent's main thread ends.
func dieWithParent(attr *syscall.SysProcAttr) error {
	if unix.Gettid() != unix.Getpid() {
		return errors.New("not on the main thread, so the child would die with some other one")
	}
	attr.Pdeathsig = syscall.SIGKILL
	return nil
}

// closeRead makes a socket return its buffered messages and then its end.
func closeRead(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) }
