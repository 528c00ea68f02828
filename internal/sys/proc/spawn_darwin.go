package proc

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// packets is the type of the control socket: a stream, because there are no sockets of
	// packets whose end is noticed; see frame.
	packets = unix.SOCK_STREAM
	// sendFlags: do not wait for room.
	sendFlags = unix.MSG_DONTWAIT
	// maxRSSUnit is what the kernel counts memory in, in bytes.
	maxRSSUnit = 1
)

// Executable returns the path of this process's binary. If that is replaced while it runs,
// worker processes are of the new one.
func Executable() (string, error) { return os.Executable() }

// dieWithParent does nothing: a worker process sees the end of its control socket.
func dieWithParent(*syscall.SysProcAttr) error { return nil }

// closeRead does nothing: here a shutdown would drop the messages that the socket holds. Recv ends when
// the last process that holds the other end is gone.
func closeRead(int) error { return nil }

func socketpair() (pair [2]int, err error) {
	// No other process may be started between these calls and the last.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if pair, err = unix.Socketpair(unix.AF_UNIX, packets, 0); err != nil {
		return pair, err
	}
	for _, fd := range pair {
		unix.CloseOnExec(fd)
		if err = unix.SetNonblock(fd, true); err != nil {
			_, _ = unix.Close(pair[0]), unix.Close(pair[1])
			return pair, fmt.Errorf("non-blocking: %w", err)
		}
	}
	return pair, nil
}
