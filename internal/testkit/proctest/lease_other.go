//go:build unix && !linux

package proctest

import "testing"

// Lease skips the test: there are no leases on files here.
func Lease(tb testing.TB, path string) (giveBack func()) {
	tb.Helper()
	tb.Skipf("no lease on %s: only Linux has them", path)
	return func() {}
}
