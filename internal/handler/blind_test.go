package handler

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// A process that looks like the command's, but is not, is not waited for.
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
	// Younger than the command, so it might be a descendant.
	stranger := exec.Command("sleep", "60")
	stranger.Env, stranger.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, stranger.Start())
	p := &process{runner: &runner{}, leader: &launch.Process{PID: command.Process.Pid}}
	st, err := procfs.ReadStat(command.Process.Pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // it may be executing its program still
		seen, err := procfs.ReadStat(stranger.Process.Pid)
		require.NoError(t, err)
		v, err := p.judge(procfs.Seen{ID: procfs.ID{PID: stranger.Process.Pid, Start: seen.Start}, Stat: seen}, st.Start)
		require.NoError(t, err)
		return v == procfs.Other
	}, 30*time.Second, time.Millisecond)
	p.sweep()
	_ = command.Wait() // it was killed
	require.NoError(t, unix.Kill(stranger.Process.Pid, 0))
	require.NoError(t, stranger.Process.Kill())
	_ = stranger.Wait()
	v, err := p.judge(procfs.Seen{ID: procfs.ID{PID: stranger.Process.Pid, Start: st.Start}}, st.Start)
	require.NoError(t, err)
	require.Equal(t, procfs.Unclear, v, "its children may be about to come to this process")
}
