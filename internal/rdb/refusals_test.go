package rdb_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
)

func TestUnreachable(t *testing.T) {
	t.Parallel()
	_, missing := os.Open(filepath.Join(t.TempDir(), "missing"))
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"a refused connection is":         {&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, true},
		"a socket that is not there is":   {&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.ENOENT)}, true},
		"a host without a name is":        {&net.DNSError{Name: "h", IsNotFound: true}, true},
		"no answer in time is":            {context.DeadlineExceeded, true},
		"a connection that ended is":      {io.EOF, true},
		"a write that failed is":          {&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, true},
		"a file that is not there is not": {missing, false},
		"a full disk is not":              {&os.PathError{Op: "write", Path: "pid", Err: syscall.ENOSPC}, false},
		"nothing wrong is not":            {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, rdb.Unreachable(tc.err))
			if tc.err != nil {
				require.Equal(t, tc.want, rdb.Unreachable(fmt.Errorf("push: %w", tc.err)))
			}
		})
	}
}

// brokenConn is a connection whose server is gone as soon as it is made.
type brokenConn struct {
	net.Conn
	read, write error
}

func (c *brokenConn) Write(p []byte) (int, error) {
	if c.write != nil {
		return 0, c.write
	}
	return len(p), nil
}

func (c *brokenConn) Read([]byte) (int, error) { return 0, c.read }

// The library tells of what has ended a connection that it had just made in other words than
// of what ends one that it has used.
func TestUnreachableAtOnce(t *testing.T) {
	t.Parallel()
	failed := func(op string, errno syscall.Errno) error {
		return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, errno)}
	}
	for name, broken := range map[string]brokenConn{
		"at its first write": {write: failed("write", syscall.EPIPE)},
		"reset at its write": {write: failed("write", syscall.ECONNRESET)},
		"at its first read":  {read: failed("read", syscall.ECONNRESET)},
		"no route any more":  {read: failed("read", syscall.EHOSTUNREACH)},
		"closed":             {write: &net.OpError{Op: "write", Net: "tcp", Err: net.ErrClosed}},
		"late":               {read: &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}},
		"at its end":         {read: io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there := net.Pipe()
			defer func() { _ = there.Close() }()
			c := redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
				return &brokenConn{Conn: here, read: broken.read, write: broken.write}, nil
			}})
			defer func() { _ = c.Close() }()
			err := c.Ping(t.Context()).Err()
			require.Error(t, err)
			require.True(t, rdb.Unreachable(err), "%#v", err)
		})
	}
}
