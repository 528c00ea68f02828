package handler

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/launch"
	"github.com/resqued/resqued/internal/procfs"
	"github.com/resqued/resqued/internal/testlevel"
)

// Whoever may open no more files must not say that a job's processes are gone.
func TestLookWithoutFiles(t *testing.T) {
	testlevel.Integration(t)
	if os.Getenv("HANDLER_TEST_BLIND") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestLookWithoutFiles$")
		cmd.Env = append(os.Environ(), "HANDLER_TEST_BLIND=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	child := exec.Command("sleep", "60") // outlives the leader in its group
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: cmd.Process.Pid}
	require.NoError(t, child.Start())
	p := &process{runner: &runner{}, leader: &launch.Process{PID: cmd.Process.Pid}}
	require.True(t, procfs.ListsChildren())
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}))
	left, _ := p.look(true)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
	require.Positive(t, left)

	// Files that may be opened again before a look has ended do not make it a good one.
	stop, toggled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(toggled)
		for {
			select {
			case <-stop:
				_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &had)
				return
			default:
				_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max})
				_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &had)
			}
		}
	}()
	overlooked := 0
	for range 3000 {
		if left, _ := p.look(false); left == 0 {
			overlooked++
		}
	}
	close(stop)
	<-toggled
	require.Zero(t, overlooked)
	require.NoError(t, unix.Kill(-cmd.Process.Pid, unix.SIGKILL))
	_, _ = cmd.Wait(), child.Wait()
}

// What cannot be told from others, and is none of the command's, is not waited for.
func TestStrangersAreNotWaitedFor(t *testing.T) {
	testlevel.Integration(t)
	if os.Getenv("HANDLER_TEST_STRANGER") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestStrangersAreNotWaitedFor$")
		cmd.Env = append(os.Environ(), "HANDLER_TEST_STRANGER=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	command := exec.Command("sleep", "60")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, command.Start())
	// Younger than the command, so that it might come from it.
	stranger := exec.Command("sleep", "60")
	stranger.Env, stranger.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, stranger.Start())
	p := &process{runner: &runner{}, leader: &launch.Process{PID: command.Process.Pid}}
	_, unclear := p.look(true)
	require.Zero(t, unclear)
	_ = command.Wait() // it was killed
	require.NoError(t, unix.Kill(stranger.Process.Pid, 0))
	require.NoError(t, stranger.Process.Kill())
	_ = stranger.Wait()
}
