package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// A process that both environment and title identify is found once: otherwise no-files would
// take its own limit for the one to restore.
func TestEachProcessIsFoundOnce(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	m := &machine{mark: "chaos-test-" + strings.ToLower(t.Name())}
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), sleep, "600")
	cmd.Args[0] = "resqued-runner " + m.mark + ": "
	cmd.Env = []string{markEnv + "=" + m.mark}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		found := m.processes()
		return len(found) == 1 && found[0].PID == cmd.Process.Pid
	}, patience, 10*time.Millisecond)
}
