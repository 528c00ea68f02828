//go:build unix && !linux

package proctest

import "testing"

// Lease skips the test: only Linux has leases on files.
func Lease(tb testing.TB, path string) (giveBack func()) {
	tb.Helper()
	tb.Skipf("no lease on %s: only Linux has them", path)
	return func() {}
}
