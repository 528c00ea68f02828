package system_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// unkillable freezes a process, so that it does not end when it is killed, until thaw is
// called. It requires root and a freezer of cgroup v1.
func unkillable(t *testing.T, pid int) (thaw func()) {
	t.Helper()
	group := filepath.Join("/sys/fs/cgroup/freezer", "resqued-test-"+strconv.Itoa(pid))
	if err := os.Mkdir(group, 0o700); err != nil {
		t.Skip("no freezer on this machine: ", err)
	}
	write := func(file, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(group, file), []byte(text), 0o600))
	}
	thaw = func() { write("freezer.state", "THAWED") }
	t.Cleanup(func() {
		thaw()
		proctest.Await(t, patience, func() bool { return os.Remove(group) == nil }, "the end of the frozen process")
	})
	write("cgroup.procs", strconv.Itoa(pid))
	write("freezer.state", "FROZEN")
	return thaw
}

// TestWorkerProcessThatIsLongInEnding kills a worker process that takes long to end. The
// commands that it has started are ended before it, because its locks do not last that long.
func TestWorkerProcessThatIsLongInEnding(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := harness.Start(t, harness.Options{Config: outdoor(dir), Env: []string{"RESQUE_TERM_TIMEOUT=1"}})
	d.PushRaw("mail", `{"class":"Outdoor","args":[1]}`)
	runs(t, dir, 1)
	proctest.Await(t, patience, func() bool { return len(sleepers(d)) == 1 }, "the process in its own session")
	worker := d.WorkerPIDs()[0]
	thaw := unkillable(t, worker)
	d.Signal(term)
	// The master and the worker process.
	proctest.Await(t, patience, func() bool { return len(d.Processes()) == 2 }, "the end of what it has started")
	require.True(t, proctest.Alive(worker))
	require.Empty(t, d.Failures(), "as long as it lives nothing is recorded")
	thaw()
	require.Zero(t, d.Exit())
	wasKilled(t, d.Failures())
	require.Empty(t, d.Residue())
}
