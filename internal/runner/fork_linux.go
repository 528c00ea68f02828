package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/wire"
)

// canFork checks whether forks of a template can be found and killed reliably. Without a mark, a
// process could leave others behind.
func canFork() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	_ = unix.Close(fd)
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &limit); err != nil {
		return fmt.Errorf("prlimit: %w", err)
	}
	if limit.Max != unix.RLIM_INFINITY {
		return errors.New("the limit of file locks (LimitLOCKS) does not leave room for the marks of processes")
	}
	return nil
}

func templateOf(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("%T is not a unix socket", c)
	}
	return u, nil
}

// ask requests a process from the template. When it returns, the template has the request or
// will get it.
func (q *process) ask(files []*os.File, limit time.Time) error {
	p := q.pool
	var refused error
	err := q.conn.raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	})
	if err = errors.Join(err, refused); err != nil {
		return fmt.Errorf("SO_PASSCRED: %w", err)
	}
	packet := strconv.AppendInt([]byte(`{"fork":{"concurrency":`), int64(p.o.Concurrency), 10)
	packet = wire.AppendString(append(packet, `,"env":{"`+procfs.ProcEnv+`":`...), p.o.Proc)
	packet = wire.AppendString(append(packet, `,"`+tagEnv+`":`...), q.tag)
	packet = append(packet, "}}}"...)
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	_ = p.template.SetWriteDeadline(limit)
	if _, _, err := p.template.WriteMsgUnix(packet, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("ask the template for a process: %w", err)
	}
	return nil
}

func unread(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

type forked struct {
	pidfd int
	file  *os.File // for Go's poller
}

// meet reads the hello of a forked process and opens a handle on it.
func (q *process) meet() error {
	pid, err := q.sender()
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.EINVAL) { // kernels before 5.10
		if fd, err = unix.PidfdOpen(pid, 0); err == nil {
			_ = unix.SetNonblock(fd, true)
		}
	}
	if err != nil {
		return fmt.Errorf("process %d: pidfd_open: %w", pid, err)
	}
	h := &forked{pidfd: fd, file: os.NewFile(uintptr(fd), "pidfd")}
	// From here on, the pid can be reused only after the end of the socket.
	marked := mark.Set(pid, q.mark)
	if err := q.greet(); err != nil {
		h.giveUp()
		return err
	}
	if _, err := q.conn.waiting(); err != nil {
		h.giveUp()
		return errors.New("ended, or closed its socket, right after its hello")
	}
	q.pid.Store(int64(pid))
	q.handle = h
	if marked != nil {
		q.pool.cannotFork(marked)
		return fmt.Errorf("process %d cannot be marked: %w", pid, marked)
	}
	return q.conn.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 0)
	})
}

// sender waits for the first bytes and returns their sender, without reading them.
func (q *process) sender() (pid int, err error) {
	var refused error
	err = q.conn.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
		n, m, _, _, err := unix.Recvmsg(int(fd), b[:], oob, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return false
		case err != nil:
			refused = err
			return true
		case n == 0:
			refused = io.EOF
			return true
		}
		list, err := unix.ParseSocketControlMessage(oob[:m])
		for i := range list {
			if cred, no := unix.ParseUnixCredentials(&list[i]); no == nil {
				pid = int(cred.Pid)
			}
		}
		refused = err
		return true
	})
	switch {
	case errors.Is(refused, io.EOF):
		return 0, errNoHello
	case err != nil:
		return 0, err
	case refused != nil:
		return 0, refused
	case pid <= 0:
		return 0, errors.New("said hello from where this process cannot see it: it must be in the same PID namespace")
	}
	return pid, nil
}

func (h *forked) giveUp() {
	h.kill()
	_, _ = h.reap()
}

func (h *forked) kill() {
	if conn, err := h.file.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
}

func (h *forked) await() {
	conn, err := h.file.SyscallConn()
	if err == nil {
		err = conn.Read(launch.Ended)
	}
	if err == nil {
		return
	}
	// Go's poller cannot wait for it; a thread waits.
	for poll := []unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}}; ; {
		if n, err := unix.Poll(poll, -1); !errors.Is(err, unix.EINTR) || n > 0 {
			return
		}
	}
}

// reap implements handle. The template reports the exit status over another pipe.
func (h *forked) reap() (string, error) { return "", h.file.Close() }
