package devredis

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// TestLaunchFindsThePortOfTheClusterBusTaken checks a failure that comes after the server
// listens on its socket: the port of its cluster bus, which is its own port plus 10,000, is
// taken.
func TestLaunchFindsThePortOfTheClusterBusTaken(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	binary, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	var bus net.Listener
	for {
		bus, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = bus.Close() })
		if bus.Addr().(*net.TCPAddr).Port > 12000 {
			break
		}
	}
	port := strconv.Itoa(bus.Addr().(*net.TCPAddr).Port - 10000)
	for range 20 {
		dir, err := os.MkdirTemp("", "devredis")
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		p, err := Launch(t.Context(), ProcessConfig{
			Binary: binary, Dir: dir, Socket: dir + "/s",
			Args: []string{"--bind", "127.0.0.1", "--port", port, "--cluster-enabled", "yes"},
		})
		if err == nil {
			p.Kill()
		}
		require.ErrorIs(t, err, ErrPortTaken)
	}
}
