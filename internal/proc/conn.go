package proc

import (
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
// one side is the other's io.EOF. Send may be called by several goroutines,
// Recv by one.
type Conn struct {
	f    *os.File
	raw  rawConn
	send sync.Mutex
	buf  []byte
}

type rawConn interface {
	Control(f func(fd uintptr)) error
}

// newConn takes over fd, a non-blocking SEQPACKET socket.
func newConn(fd int, name string) (*Conn, error) {
	f := os.NewFile(uintptr(fd), name)
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &Conn{f: f, raw: raw, buf: make([]byte, maxMessage)}, nil
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
	c.send.Lock()
	defer c.send.Unlock()
	// Without a deadline first: on a loaded machine this goroutine may be put
	// aside between setting a deadline and writing, and nothing was full.
	if err := c.try(packet); !errors.Is(err, unix.EAGAIN) {
		return wrapSend(m, err)
	}
	if err := c.f.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return wrapSend(m, err)
	}
	if _, err := c.f.Write(packet); !errors.Is(err, os.ErrDeadlineExceeded) {
		return wrapSend(m, err)
	}
	return wrapSend(m, ErrFull)
}

func (c *Conn) try(packet []byte) error {
	var sent error
	err := c.raw.Control(func(fd uintptr) {
		for {
			sent = unix.Send(int(fd), packet, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if sent != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return sent
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
	n, err := c.f.Read(c.buf)
	if errors.Is(err, unix.ECONNRESET) {
		// The other side died with messages of ours unread. The kernel says so
		// once, before what it had sent to us.
		n, err = c.f.Read(c.buf)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, os.ErrClosed):
		return m, io.EOF
	case err != nil:
		return m, fmt.Errorf("control socket: %w", err)
	}
	if err := json.Unmarshal(c.buf[:n], &m); err != nil {
		return m, fmt.Errorf("control socket: message %.80q: %w", c.buf[:n], err)
	}
	return m, nil
}

// Close ends the connection; a Recv under way returns io.EOF.
func (c *Conn) Close() error { return c.f.Close() }
