package system_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// A daemon without its Redis is alive but useless.
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

// A daemon started without its Redis is alive: restarting it would not help.
func TestHealthWhileRedisIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, durable)
	server.Kill()
	socket := filepath.Join(t.TempDir(), "control.sock")
	d := harness.Start(t, harness.Options{App: true, Redis: server, Unready: true, Env: []string{"RESQUED_CONTROL_SOCKET=" + socket}})
	d.AwaitLog("waiting for redis")
	stdout, stderr, code := d.Run("health", "--alive", "--socket", socket)
	require.Zero(t, code, stdout+stderr)
	require.Contains(t, stdout, "the daemon is starting: waiting for redis")
	stdout, _, code = d.Run("health", "--socket", socket)
	require.Equal(t, 3, code, stdout)
	_, stderr, code = d.Run("reload", "--socket", socket)
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stderr, "the daemon is starting")
	server.Restart()
	d.AwaitReady()
	stdout, stderr, code = d.Run("health", "--socket", socket)
	require.Zero(t, code, stdout+stderr)
}
