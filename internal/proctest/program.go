package proctest

import (
	"os"
	"syscall"
	"testing"
)

// WriteProgram writes a file that is to be executed. This process starts no child while the
// file is open: the child would inherit the open file until it executes its own program, and
// meanwhile executing the file would fail ("text file busy").
func WriteProgram(tb testing.TB, path string, content []byte) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, content, 0o755); err != nil { //nolint:gosec // it is to be executed
		tb.Fatal(err)
	}
}
