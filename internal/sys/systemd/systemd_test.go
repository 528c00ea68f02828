package systemd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// listen plays the service manager.
func listen(t *testing.T, address string) (*Notifier, func() string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	n := New(Config{Socket: address}, zap.NewNop())
	return n, func() string {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
		buf := make([]byte, 4096)
		size, err := conn.Read(buf)
		require.NoError(t, err)
		return string(buf[:size])
	}
}

func TestNotifier(t *testing.T) {
	for name, address := range map[string]string{
		"a socket in the file system": filepath.Join(t.TempDir(), "notify"),
		"an abstract socket":          fmt.Sprintf("@resqued-test-%d", os.Getpid()),
	} {
		t.Run("every message arrives on "+name, func(t *testing.T) {
			n, next := listen(t, address)
			n.Ready()
			require.Equal(t, "READY=1", next())
			n.Status("running,\n4 workers")
			require.Equal(t, "STATUS=running, 4 workers", next())
			n.Status("running,\n4 workers") // not again
			n.Stopping()
			require.Equal(t, "STOPPING=1", next())
			n.ExtendTimeout(15 * time.Second)
			require.Equal(t, "EXTEND_TIMEOUT_USEC=15000000", next())
			n.Watchdog()
			require.Equal(t, "WATCHDOG=1", next())
			n.Reloading()
			var usec int64
			_, err := fmt.Sscanf(next(), "RELOADING=1\nMONOTONIC_USEC=%d", &usec)
			require.NoError(t, err)
			require.Positive(t, usec)
		})
	}

	t.Run("a socket without a listener is not an error, and is said once", func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		n := New(Config{Socket: filepath.Join(t.TempDir(), "gone")}, zap.New(core))
		n.Ready()
		n.Watchdog()
		require.Equal(t, 1, logs.Len())
	})

	t.Run("without a service manager nothing is sent", func(t *testing.T) {
		on, next := listen(t, filepath.Join(t.TempDir(), "notify"))
		off := New(Config{}, zap.NewNop())
		off.Ready()
		on.Stopping()
		require.Equal(t, "STOPPING=1", next())
	})
}

func TestWatchdogInterval(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want time.Duration
	}{
		{"it is what the unit says", Config{Socket: "x", WatchdogUSec: "30000000", WatchdogPID: strconv.Itoa(os.Getpid())}, 30 * time.Second},
		{"without a pid it is for this process", Config{Socket: "x", WatchdogUSec: "1000"}, time.Millisecond},
		{"it is off for another process", Config{Socket: "x", WatchdogUSec: "1000", WatchdogPID: "1"}, 0},
		{"it is off without a value", Config{Socket: "x"}, 0},
		{"it is off with a bad value", Config{Socket: "x", WatchdogUSec: "soon"}, 0},
		{"it is off without a socket", Config{WatchdogUSec: "1000"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, New(c.cfg, zap.NewNop()).WatchdogInterval())
		})
	}
}

func TestServiceManagerThatDoesNotRead(t *testing.T) {
	address := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	core, seen := observer.New(zap.WarnLevel)
	n := New(Config{Socket: address}, zap.New(core))
	for range 10_000 {
		n.Watchdog()
		if seen.Len() > 0 {
			break
		}
	}
	require.Equal(t, "the service manager cannot be told", seen.All()[0].Message)
}

// A long start is extended while the master reports its progress: for the race detector.
func TestSeveralAtOnce(t *testing.T) {
	t.Parallel()
	n := New(Config{Socket: filepath.Join(t.TempDir(), "none")}, zap.NewNop())
	var all sync.WaitGroup
	for _, say := range []func(){func() { n.ExtendTimeout(time.Second) }, func() { n.Status("booting") }, n.Hold, n.Speak} {
		all.Go(say)
	}
	all.Wait()
}
