package procfs

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/mark"
	"github.com/resqued/resqued/internal/testlevel"
)

// Whoever may open no more files must not say that nobody is left.
func TestSweepWithoutFiles(t *testing.T) {
	testlevel.Integration(t)
	if os.Getenv("PROC_TEST_BLIND") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestSweepWithoutFiles$")
		cmd.Env = append(os.Environ(), "PROC_TEST_BLIND=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.NoError(t, Subreaper())
	require.True(t, ListsChildren())
	for name, master := range map[string]func() bool{
		"own":       func() bool { return true },
		"elsewhere": nil,
	} {
		name = unique(name)
		child := exec.Command("sleep", "60")
		child.Env = []string{"PATH=" + os.Getenv("PATH"), ProcEnv + "=" + name}
		require.NoError(t, child.Start())
		var had unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}))
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		killed, err := NewSweeper(name, master).Sweep(ctx)
		cancel()
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
		require.Error(t, err)
		require.Zero(t, killed)
		killed, err = NewSweeper(name, master).Sweep(context.Background())
		require.NoError(t, err)
		require.Equal(t, 1, killed)
		_ = child.Wait()
	}
}

// Whoever may open no more files must not take somebody's child for an orphan.
func TestStraysWithoutFiles(t *testing.T) {
	testlevel.Integration(t)
	if os.Getenv("PROC_TEST_BLIND") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestStraysWithoutFiles$")
		cmd.Env = append(os.Environ(), "PROC_TEST_BLIND=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	if !handled() {
		t.Skip("this kernel knows no handles of processes")
	}
	child := exec.Command("true")
	require.NoError(t, child.Start())
	require.Eventually(t, func() bool {
		_, zombie := mark.Hidden(child.Process.Pid)
		return zombie
	}, 30*time.Second, time.Millisecond)
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max})
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &had)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	s := Strays{}
	for range 3000 {
		s.Reap()
	}
	close(stop)
	<-stopped
	require.NoError(t, child.Wait())
}
