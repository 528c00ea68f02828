//go:build unix

package rdb

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// blockingTick is how long the kernel waits in one go: so much later than its deadline a
// read or write may fail.
const blockingTick = 100 * time.Millisecond

// blockingConn is a connection whose reads and writes block their thread.
type blockingConn struct {
	net.Conn // it is closed, but knows the addresses
	file     *os.File
	// The deadlines, as nanoseconds of the epoch; 0 = none.
	readBy, writeBy atomic.Int64
}

// blocking takes over a connection.
func blocking(conn net.Conn) (net.Conn, error) {
	defer conn.Close() // the socket lives on in its copy
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var failed error
	if err := raw.Control(func(own uintptr) { fd, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, os.NewSyscallError("dup", failed)
	}
	tick := unix.NsecToTimeval(blockingTick.Nanoseconds())
	err = errors.Join(unix.SetNonblock(fd, false),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tick),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tick))
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &blockingConn{Conn: conn, file: os.NewFile(uintptr(fd), conn.RemoteAddr().String())}, nil
}

func (c *blockingConn) Read(p []byte) (int, error) {
	for {
		n, err := c.file.Read(p)
		if n > 0 || !errors.Is(err, syscall.EAGAIN) {
			return n, c.failure("read", err)
		}
		if past(&c.readBy) {
			return 0, c.failure("read", os.ErrDeadlineExceeded)
		}
	}
}

func (c *blockingConn) Write(p []byte) (int, error) {
	written := 0
	for {
		n, err := c.file.Write(p[written:])
		written += n
		if written == len(p) || !errors.Is(err, syscall.EAGAIN) {
			return written, c.failure("write", err)
		}
		if past(&c.writeBy) {
			return written, c.failure("write", os.ErrDeadlineExceeded)
		}
	}
}

func past(deadline *atomic.Int64) bool {
	by := deadline.Load()
	return by != 0 && time.Now().UnixNano() >= by
}

// failure is err as a connection of package net has it.
func (c *blockingConn) failure(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if file, ok := errors.AsType[*os.PathError](err); ok {
		err = file.Err
	}
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// Close also ends a read or write that is under way, at the next tick.
func (c *blockingConn) Close() error { return c.file.Close() }

// SyscallConn is for the pool's check.
func (c *blockingConn) SyscallConn() (syscall.RawConn, error) { return c.file.SyscallConn() }

func (c *blockingConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *blockingConn) SetReadDeadline(t time.Time) error {
	setDeadline(&c.readBy, t)
	return nil
}

func (c *blockingConn) SetWriteDeadline(t time.Time) error {
	setDeadline(&c.writeBy, t)
	return nil
}

func setDeadline(to *atomic.Int64, t time.Time) {
	if t.IsZero() {
		to.Store(0)
		return
	}
	to.Store(t.UnixNano())
}
