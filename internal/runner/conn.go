package runner

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/program"
)

// conn is the socket of a process. One goroutine at a time reads it.
type conn struct {
	file *os.File
	raw  syscall.RawConn
	from *program.Lasting
	in   *bufio.Reader
	// half is since when a line without its end has arrived, in ns of the epoch; 0 = none has.
	half atomic.Int64

	writing sync.Mutex // held for each line
	after   bool       // a line was written after the last job's; under writing
}

func newConn(fd int) (*conn, error) {
	c := &conn{file: os.NewFile(uintptr(fd), "runner")}
	raw, err := c.file.SyscallConn()
	if err != nil {
		_ = c.file.Close()
		return nil, err
	}
	c.raw, c.from = raw, &program.Lasting{File: c.file}
	c.in = bufio.NewReaderSize(c, 4<<10)
	return c, nil
}

// Read reads for in, and notes half.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	switch end := bytes.LastIndexByte(p[:n], '\n'); {
	case n == 0:
	case end == n-1:
		c.half.Store(0)
	case end >= 0:
		c.half.Store(time.Now().UnixNano())
	default:
		c.half.CompareAndSwap(0, time.Now().UnixNano())
	}
	return n, err
}

// line returns the next line without its line break, valid until the next call. An incomplete
// line before the end is dropped.
func (c *conn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		var long []byte
		for errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, line...); len(long) > maxAnswer {
				return long[:maxAnswer], errTooLong
			}
			line, err = c.in.ReadSlice('\n')
		}
		if line = append(long, line...); len(line) > maxAnswer+1 {
			return line[:maxAnswer], errTooLong
		}
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// waiting reports, without blocking, whether there is something to read. It returns an error at
// the end.
func (c *conn) waiting() (bool, error) {
	if c.in.Buffered() > 0 {
		return true, nil
	}
	var n int
	var err error
	if refused := c.raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	}); refused != nil {
		return false, refused
	}
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return false, io.EOF
	}
	return true, nil
}

func (c *conn) write(line []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.after = true
	_, err := c.file.Write(line)
	return err
}

// last reports whether the last job's line is the last one written.
func (c *conn) last() bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	return !c.after
}

func (c *conn) close() { _ = c.file.Close() }
