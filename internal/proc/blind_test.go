package proc

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Whoever may open no more files must not say that nobody is left.
func TestSweepWithoutFiles(t *testing.T) {
	if os.Getenv("PROC_TEST_BLIND") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestSweepWithoutFiles$")
		cmd.Env = append(os.Environ(), "PROC_TEST_BLIND=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.NoError(t, Subreaper())
	self, err := Self()
	require.NoError(t, err)
	require.True(t, listsChildren())
	for _, name := range []string{self.String() + ":0.0", "elsewhere:1:1-1:0.0"} {
		child := exec.Command("sleep", "60")
		child.Env = []string{"PATH=" + os.Getenv("PATH"), ProcEnv + "=" + name}
		require.NoError(t, child.Start())
		var had unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}))
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		killed, err := Sweep(ctx, name)
		cancel()
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
		require.Error(t, err)
		require.Zero(t, killed)
		killed, err = Sweep(context.Background(), name)
		require.NoError(t, err)
		require.Equal(t, 1, killed)
		_ = child.Wait()
	}
}
