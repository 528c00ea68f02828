//go:build linux

package procfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// sleeper starts a process that does nothing until the test ends.
func sleeper(t *testing.T, change ...func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	for _, c := range change {
		c(cmd)
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

// ended returns a child of this process that has ended: not reaped yet, or reaped.
func ended(t *testing.T, reaped bool) (pid int) {
	t.Helper()
	testlevel.Integration(t)
	cmd := exec.Command("true")
	require.NoError(t, cmd.Start())
	pid = cmd.Process.Pid
	if reaped {
		require.NoError(t, cmd.Wait())
		return pid
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		s, err := ReadStat(pid)
		return err == nil && s.Zombie()
	}, 30*time.Second, time.Millisecond)
	return pid
}

func TestReadStat(t *testing.T) {
	t.Parallel()

	t.Run("a name may look like the fields behind it", func(t *testing.T) {
		t.Parallel()
		sleep, err := exec.LookPath("sleep")
		require.NoError(t, err)
		text, err := os.ReadFile(sleep)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "a) Z 1 (b")
		require.NoError(t, os.WriteFile(path, text, 0o700)) //nolint:gosec // it is to be executed
		cmd := sleeper(t, func(c *exec.Cmd) { c.Path, c.SysProcAttr = path, &syscall.SysProcAttr{Setpgid: true} })
		s, err := ReadStat(cmd.Process.Pid)
		require.NoError(t, err)
		require.False(t, s.Zombie())
		require.Equal(t, os.Getpid(), s.Parent)
		require.Equal(t, cmd.Process.Pid, s.Group)
		require.EqualValues(t, 1, s.Threads)
	})

	t.Run("a process that has ended is dead before it was reaped, and gone afterwards", func(t *testing.T) {
		t.Parallel()
		s, err := ReadStat(ended(t, false))
		require.NoError(t, err)
		require.True(t, s.Dead())
		_, err = ReadStat(ended(t, true))
		require.Error(t, err)
		require.NoError(t, Blind(err), "that is no matter of this process")
	})

	t.Run("a zombie with threads lives", func(t *testing.T) {
		t.Parallel()
		for _, state := range []byte("ZX") {
			require.True(t, Stat{State: state, Threads: 1}.Dead())
			require.False(t, Stat{State: state, Threads: 2}.Dead())
		}
		require.False(t, Stat{State: 'R'}.Dead())
	})
}

func TestKill(t *testing.T) {
	t.Parallel()
	cmd := sleeper(t)
	s, err := ReadStat(cmd.Process.Pid)
	require.NoError(t, err)
	id := ID{cmd.Process.Pid, s.Start}
	require.False(t, ID{id.PID, id.Start - 1}.Kill(), "the number has become another's")
	require.NoError(t, unix.Kill(id.PID, 0))
	s, err = ReadStat(id.PID)
	require.NoError(t, err)
	require.False(t, s.Zombie())
	require.True(t, id.Kill())
	require.Error(t, cmd.Wait())
	require.False(t, id.Kill(), "it is gone")
}

// One file is enough to kill a process.
func TestKillWithTheLastFile(t *testing.T) {
	if os.Getenv("PROC_TEST_BLIND") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillWithTheLastFile$")
		cmd.Env = append(os.Environ(), "PROC_TEST_BLIND=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	cmd := sleeper(t)
	s, err := ReadStat(cmd.Process.Pid)
	require.NoError(t, err)
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	lowest, err := unix.Dup(0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(lowest))
	id := ID{cmd.Process.Pid, s.Start}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(lowest) + 1, Max: had.Max}))
	stranger, killed := ID{id.PID, id.Start - 1}.Kill(), id.Kill()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
	require.False(t, stranger)
	require.True(t, killed)
	require.Error(t, cmd.Wait())
}
