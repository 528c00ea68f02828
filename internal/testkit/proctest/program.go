package proctest

import (
	"bytes"
	"os/exec"
	"testing"
)

// WriteProgram writes a file to be executed. Another process writes it: a child that this one
// starts at the same time would inherit the open file until its own exec, and executing the file
// would fail ("text file busy").
func WriteProgram(tb testing.TB, path string, content []byte) {
	tb.Helper()
	write := exec.Command("sh", "-c", `cat >"$0" && chmod 755 "$0"`, path)
	write.Stdin = bytes.NewReader(content)
	if out, err := write.CombinedOutput(); err != nil {
		tb.Fatalf("write %s: %v\n%s", path, err, out)
	}
}
