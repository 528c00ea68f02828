package proctest

import (
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Lease takes a lease on a file: a process that opens or executes it has to wait until the lease
// is given back, or until the kernel takes it after /proc/sys/fs/lease-break-time, 45 seconds by
// default. The lease ends with the test.
func Lease(tb testing.TB, path string) (giveBack func()) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatalf("take a lease: %v", err)
	}
	giveBack = sync.OnceFunc(func() { _ = f.Close() })
	tb.Cleanup(giveBack)
	// EAGAIN means that another process has the file open, as after writing a program.
	if !Within(10*time.Second, func() bool {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		return err == nil
	}) {
		tb.Skipf("no lease on %s: %v", path, err)
	}
	return giveBack
}
