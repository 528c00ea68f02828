package proc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxMessage bounds a packet; a longer one would be cut off by Recv.
	maxMessage = 64 << 10
	// sendPatience is how long Send waits for room. A few hundred messages fit,
	// so a full buffer means that the other side has not read for a long time.
	sendPatience = 5 * time.Millisecond
)

// ErrFull: the other side does not read its messages. It is not healthy.
var ErrFull = errors.New("resqued: control socket full")

// Conn is one end of the control socket between a master and a worker process:
// a SEQPACKET socket, so that messages keep their boundaries and the death of
// one side is the other's io.EOF. Where the system has none of these it is a stream, and
// the length of each message, of four bytes, goes before it. Send may be called by several
// goroutines, Recv by one.
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

// newConn takes over fd, a non-blocking socket of that type.
func newConn(fd, kind int, name string) (*Conn, error) {
	f := os.NewFile(uintptr(fd), name)
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &Conn{f: f, raw: raw, stream: kind == unix.SOCK_STREAM, buf: make([]byte, maxMessage)}, nil
}

// Send writes one message. It never waits longer than a few milliseconds:
// ErrFull says that the other side has stopped reading. The message is then
// lost, and any other error means that the other side is gone.
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
	// Without a deadline first: on a loaded machine this goroutine may be put
	// aside between setting a deadline and writing, and nothing was full.
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
		// The other side would take what comes next for the rest of this message.
		_ = c.f.Close()
	}
	return wrapSend(m, ErrFull)
}

// try sends what there is room for.
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

// Recv waits for the next message. io.EOF means that the other side is gone and
// that every message it had sent was received.
func (c *Conn) Recv() (Message, error) {
	var m Message
	n, err := c.read()
	if errors.Is(err, unix.ECONNRESET) {
		// The other side died with messages of ours unread. The kernel says so
		// once, before what it had sent to us.
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

// read reads one message.
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

// CloseRead has Recv return every message that was sent already, and then io.EOF, even while another
// process holds the other end.
func (c *Conn) CloseRead() error {
	var err error
	if failed := c.raw.Control(func(fd uintptr) { err = closeRead(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// Close ends the connection; a Recv under way returns io.EOF.
func (c *Conn) Close() error { return c.f.Close() }
