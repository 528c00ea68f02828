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
