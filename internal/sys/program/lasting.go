package program

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Lasting reads a pipe or socket to its end, even if its reader or the machine is busy in
// between: what a process wrote before it ended counts. After the file's deadline, reads return
// only what the file already holds, up to maxPipe.
type Lasting struct {
	File *os.File
	// Sys reads from the non-blocking descriptor; nil: unix.Read.
	Sys  func(fd int, p []byte) (int, error)
	raw  syscall.RawConn
	late int // bytes read after the deadline
}

// maxPipe is the most that an unprivileged pipe holds, in bytes. A socket holds less.
const maxPipe = 1 << 20

// Read reads what is available, and waits for it until the file's deadline.
func (l *Lasting) Read(p []byte) (int, error) {
	n, err := l.read(p, true)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		l.late = 0
		return n, err
	}
	if l.late > maxPipe {
		return 0, err
	}
	_ = l.File.SetReadDeadline(time.Time{}) // or nothing would be read
	n, ended := l.read(p, false)
	_ = l.File.SetReadDeadline(time.Now())
	if errors.Is(ended, unix.EAGAIN) {
		return 0, err
	}
	l.late += n
	return n, ended
}

func (l *Lasting) read(p []byte, wait bool) (n int, err error) {
	sys := l.Sys
	if sys == nil {
		sys = unix.Read
	}
	if l.raw == nil {
		if l.raw, err = l.File.SyscallConn(); err != nil {
			return 0, err
		}
	}
	refused := l.raw.Read(func(fd uintptr) bool {
		for n, err = sys(int(fd), p); errors.Is(err, unix.EINTR); {
			n, err = sys(int(fd), p)
		}
		return !wait || !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case refused != nil:
		return 0, refused
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}
