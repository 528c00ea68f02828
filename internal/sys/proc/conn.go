package proc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxMessage bounds a packet, in bytes; Recv would cut off a longer one.
	maxMessage = 64 << 10
	// sendPatience is how long Send waits for room. A few hundred messages fit, so a full buffer
	// means that the other side has not read for a long time.
	sendPatience = 5 * time.Millisecond
)

// ErrFull means that the other side does not read its messages and is unhealthy.
var ErrFull = errors.New("resqued: control socket full")

// Conn is one end of the control socket between a master and a worker process. It is a SEQPACKET
// socket: messages keep their boundaries, and the death of one side is the other's io.EOF. Where
// the system has none, it is a stream with a four-byte length before each message. Several
// goroutines may call Send, one Recv.
type Conn struct {
	f      *os.File
	raw    rawConn
	stream bool
	send   sync.Mutex
	buf    []byte
}

type rawConn interface {
	Control(f func(fd uintptr)) error
}

// connected returns a Conn and the file of its other end, for a new process.
func connected() (*Conn, *os.File, error) {
	ours, theirs, err := Socketpair(packets, "control socket")
	if err != nil {
		return nil, nil, err
	}
	conn, err := newConn(ours, packets, "control socket")
	if err != nil {
		_ = theirs.Close()
	}
	return conn, theirs, err
}

// Socketpair returns two connected sockets that no other process inherits: this process's
// non-blocking end, and the end to pass to a new process.
func Socketpair(kind int, name string) (ours int, theirs *os.File, err error) {
	// No process may be forked between Socketpair and the last CloseOnExec.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
	if err != nil {
		return -1, nil, fmt.Errorf("%s: %w", name, err)
	}
	unix.CloseOnExec(pair[0])
	unix.CloseOnExec(pair[1])
	if err := unix.SetNonblock(pair[0], true); err != nil {
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
		return -1, nil, fmt.Errorf("%s: non-blocking: %w", name, err)
	}
	return pair[0], os.NewFile(uintptr(pair[1]), name), nil
}

// newConn takes over fd, a non-blocking socket of that kind.
func newConn(fd, kind int, name string) (*Conn, error) {
	f := os.NewFile(uintptr(fd), name)
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &Conn{f: f, raw: raw, stream: kind == unix.SOCK_STREAM, buf: make([]byte, maxMessage)}, nil
}

// Send writes one message and waits for room a few milliseconds at most. With ErrFull the other
// side has stopped reading, and the message is lost. Any other error means that the other side
// is gone.
func (c *Conn) Send(m Message) error {
	packet, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("send %s: %w", m.Type, err)
	}
	if len(packet) > maxMessage {
		return fmt.Errorf("send %s: message of %d bytes is longer than %d", m.Type, len(packet), maxMessage)
	}
	if c.stream {
		packet = append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(packet)), uint32(len(packet))), packet...)
	}
	c.send.Lock()
	defer c.send.Unlock()
	// Try without a deadline first: on a loaded machine this goroutine may be preempted between
	// setting a deadline and writing.
	sent, err := c.try(packet)
	if err != nil && !errors.Is(err, unix.EAGAIN) || sent == len(packet) {
		return wrapSend(m, err)
	}
	if err := c.f.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return wrapSend(m, err)
	}
	more, err := c.f.Write(packet[sent:])
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return wrapSend(m, err)
	}
	if sent+more > 0 {
		// The other side would take later bytes for the rest of this message.
		_ = c.f.Close()
	}
	return wrapSend(m, ErrFull)
}

// try sends as much as there is room for.
func (c *Conn) try(packet []byte) (n int, err error) {
	failed := c.raw.Control(func(fd uintptr) {
		for {
			n, err = unix.SendmsgN(int(fd), packet, nil, nil, sendFlags)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if failed != nil {
		return 0, failed
	}
	return max(n, 0), err
}

func wrapSend(m Message, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("send %s: %w", m.Type, err)
}

// Recv waits for the next message. io.EOF means that the other side is gone and that all its
// messages were received.
func (c *Conn) Recv() (Message, error) {
	var m Message
	n, err := c.read()
	if errors.Is(err, unix.ECONNRESET) {
		// The other side died with unread messages of ours. The kernel reports that once, before
		// the messages that it had sent.
		n, err = c.read()
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, os.ErrClosed):
		return m, io.EOF
	case err != nil:
		return m, fmt.Errorf("control socket: %w", err)
	}
	if err := json.Unmarshal(c.buf[:n], &m); err != nil {
		return m, fmt.Errorf("control socket: message %.80q: %w", c.buf[:n], err)
	}
	return m, nil
}

func (c *Conn) read() (int, error) {
	if !c.stream {
		return c.f.Read(c.buf)
	}
	var head [4]byte
	if _, err := io.ReadFull(c.f, head[:]); err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > len(c.buf) {
		return 0, fmt.Errorf("message of %d bytes is longer than %d", n, len(c.buf))
	}
	return io.ReadFull(c.f, c.buf[:n])
}

// CloseRead makes Recv return the messages that were sent already and then io.EOF, even while
// another process holds the other end.
func (c *Conn) CloseRead() error {
	var err error
	if failed := c.raw.Control(func(fd uintptr) { err = closeRead(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// Close ends the connection; a Recv under way returns io.EOF.
func (c *Conn) Close() error { return c.f.Close() }
