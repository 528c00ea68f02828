package proctest

import (
	"os"
	"syscall"
	"testing"
)

// WriteProgram writes a file that is then executed. No process of this one is born while
// the file is open: it would have the file open, too, until it executes its own program,
// and so long the kernel does not execute the file ("text file busy").
func WriteProgram(tb testing.TB, path string, content []byte) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, content, 0o755); err != nil { //nolint:gosec // it is to be executed
		tb.Fatal(err)
	}
}
