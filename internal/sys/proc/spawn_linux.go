package proc

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// packets is the type of the control socket.
	packets = unix.SOCK_SEQPACKET
	// sendFlags: do not wait for room, and let this process live if the other has gone.
	sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	// maxRSSUnit is what the kernel counts memory in, in bytes.
	maxRSSUnit = 1 << 10
)

// Executable names this process's own binary, whatever has since been
// renamed, replaced or deleted on disk: the kernel resolves it in the child,
// which still runs the master's inode. So a deploy never mixes versions.
func Executable() (string, error) { return "/proc/self/exe", nil }

// dieWithParent has the kernel kill a process when its parent's main thread ends.
func dieWithParent(attr *syscall.SysProcAttr) error {
	if unix.Gettid() != unix.Getpid() {
		return errors.New("not on the main thread, so the child would die with some other one")
	}
	attr.Pdeathsig = syscall.SIGKILL
	return nil
}

// closeRead has a socket return the messages that it holds, and then its end.
func closeRead(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) }

func socketpair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, packets|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}
