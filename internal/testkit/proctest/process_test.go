package proctest_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestProcesses(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 100 & wait")
	cmd.Env = append(os.Environ(), "PROCTEST_TAG="+t.Name())
	require.NoError(t, cmd.Start())
	tagged := func(p proctest.Process) bool { return p.Env("PROCTEST_TAG") == t.Name() }

	// Until its exec, the child of a shell looks like the shell.
	sleeps := func(p proctest.Process) bool { return tagged(p) && p.Title == "sleep 100" }
	proctest.Await(t, 30*time.Second, func() bool { return len(proctest.Find(sleeps)) == 1 }, "the shell's child")
	require.Len(t, proctest.Find(tagged), 2)
	children := proctest.Children(cmd.Process.Pid)
	require.Len(t, children, 1)
	require.Equal(t, "sleep 100", children[0].Title)
	require.Equal(t, syscall.Getpgrp(), children[0].Group)
	require.Positive(t, proctest.Memory(os.Getpid()))

	for _, p := range proctest.Find(tagged) {
		child, err := os.FindProcess(p.PID)
		require.NoError(t, err)
		require.NoError(t, child.Kill())
	}
	require.Error(t, cmd.Wait())
	proctest.Await(t, 30*time.Second, func() bool { return len(proctest.Find(tagged)) == 0 }, "the end of the child")
	require.False(t, proctest.Alive(cmd.Process.Pid))
}
