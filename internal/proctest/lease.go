package proctest

import (
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Lease takes a lease on a file: whoever opens it, as running it does, is kept waiting until
// the lease is given back, or until the kernel takes it after
// /proc/sys/fs/lease-break-time, 45 seconds unless that is set. It is given back with the
// test.
func Lease(tb testing.TB, path string) (giveBack func()) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatalf("take a lease: %v", err)
	}
	giveBack = sync.OnceFunc(func() { _ = f.Close() })
	tb.Cleanup(giveBack)
	// EAGAIN: another process has the file open, as a program that has just been written may be.
	if !Within(10*time.Second, func() bool {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		return err == nil
	}) {
		tb.Skipf("no lease on %s: %v", path, err)
	}
	return giveBack
}
