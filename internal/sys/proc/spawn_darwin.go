package proc

import (
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
