package system_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/proctest"
	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// A daemon without its Redis is alive and of no use.
func TestHealth(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	socket := filepath.Join(t.TempDir(), "control.sock")
	d := harness.Start(t, harness.Options{App: true, Redis: server, Env: []string{"RESQUED_CONTROL_SOCKET=" + socket}})
	stdout, stderr, code := d.Run("health", "--socket", socket)
	require.Zero(t, code, stdout+stderr)
	server.Kill()
	proctest.Await(t, patience, func() bool {
		stdout, _, code := d.Run("health", "--socket", socket)
		return code == 3 && strings.Contains(stdout, "unhealthy")
	}, "that it is unhealthy")
	stdout, stderr, code = d.Run("health", "--alive", "--socket", socket)
	require.Zero(t, code, stdout+stderr)
	server.Restart()
	proctest.Await(t, patience, func() bool { _, _, code := d.Run("health", "--socket", socket); return code == 0 }, "that it is healthy")
}
