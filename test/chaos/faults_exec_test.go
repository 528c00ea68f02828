package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// The program of commands can be leased while they run: a busy or slow machine has no moment
// without one.
func TestLeaseWhileTheProgramRuns(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	c := newChaos(options{})
	c.dir = t.TempDir()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	require.NoError(t, copyFile(sleep, c.tool()))
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), c.tool(), "600")
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	start()
	if _, err := takeLease(c.tool()); err == nil {
		t.Skip("a program that runs can be leased here")
	}
	held, err := c.leasedTool(t.Context())
	require.NoError(t, err)
	t.Cleanup(held.giveUp)
	require.False(t, held.wanted())
	begun := make(chan error, 1)
	// Another process waits at exec: this one would be blocked as a whole.
	next := exec.CommandContext(t.Context(), "sh", "-c", `exec "$0" 0`, c.tool())
	go func() { begun <- next.Run() }()
	require.NoError(t, c.await(t.Context(), patience, "a command", held.wanted))
	held.giveUp()
	require.NoError(t, <-begun)
}
