//go:build linux

package handler

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/sys/program"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// If a command leaves no process, no look at all processes is needed, even while others run. If
// there is a process that this program has not started, it is needed.
func TestAlone(t *testing.T) {
	testlevel.Integration(t)
	if os.Getenv("HANDLER_TEST_ALONE") == "" {
		t.Parallel()
		if !procfs.ListsChildren() {
			t.Skip("this kernel lists no children")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestAlone$") // other tests have orphans
		cmd.Env = append(os.Environ(), "HANDLER_TEST_ALONE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	program.SetUp()
	r := newRunner(Options{Log: zap.NewNop()})
	defer r.launcher.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	start := func(script string) *process {
		p := &process{runner: r, log: r.log, began: time.Now()}
		p.leader, err = r.launcher.Start(launch.Program{
			Argv: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, Files: []*os.File{null, null, null},
		})
		require.NoError(t, err)
		return p
	}
	lasts := start("exec sleep 1000")
	for range 20 {
		p := start("exit 0")
		p.leader.AwaitExit()
		require.True(t, p.alone())
		_, err = p.leader.Wait()
		require.NoError(t, err)
		require.True(t, p.alone())
	}
	p := start("sleep 1000 & exit 0")
	p.leader.AwaitExit()
	require.False(t, p.alone(), "its child has come here")
	p.leader.Signal(unix.SIGKILL)
	p.sweep()
	require.True(t, p.alone())
	_, err = p.leader.Wait()
	require.NoError(t, err)

	// Without descriptors nothing is known.
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}))
	blind := p.alone()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
	require.False(t, blind)

	lasts.leader.Signal(unix.SIGKILL)
	_, err = lasts.leader.Wait()
	require.NoError(t, err)
	require.False(t, (&process{runner: &runner{}, leader: &launch.Process{PID: 1}}).alone(), "nothing was started: no thread can be asked")
}
