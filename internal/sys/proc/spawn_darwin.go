package proc

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// packets is the type of the control socket. Packet sockets would not report the end of the
	// other side, so it is a stream; see Conn.
	packets = unix.SOCK_STREAM
	// sendFlags: do not wait for room.
	sendFlags = unix.MSG_DONTWAIT
	// maxRSSUnit is what the kernel counts memory in, in bytes.
	maxRSSUnit = 1
)

// Executable returns the path of this process's binary. If it is replaced, new worker processes
// run the new one.
func Executable() (string, error) { return os.Executable() }

// dieWithParent does nothing: a worker process notices the end of its control socket.
func dieWithParent(*syscall.SysProcAttr) error { return nil }

// closeRead does nothing, because a shutdown would drop buffered messages here. Recv ends when
// the last process that holds the other end is gone.
func closeRead(int) error { return nil }

func socketpair() (pair [2]int, err error) {
	// No process may be forked between Socketpair and the last CloseOnExec.
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
