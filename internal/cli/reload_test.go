package cli

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/control"
)

// answering returns the path of a control socket that calls answer until the end of the test.
func answering(t *testing.T, answer func(context.Context, control.Request) control.Reply) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl") // short enough for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "c.sock")
	server, err := control.Listen(path, answer)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return path
}

func TestPatienceOfAReload(t *testing.T) {
	t.Parallel()
	for takes, want := range map[time.Duration]time.Duration{0: verdictPatience, time.Minute: verdictPatience, time.Hour: time.Hour + verdictMargin} {
		path := answering(t, func(context.Context, control.Request) control.Reply { return control.Reply{OK: true, Takes: takes} })
		require.Equal(t, want, patienceOf(path))
	}
}

func TestNoVerdict(t *testing.T) {
	t.Parallel()
	path := answering(t, func(ctx context.Context, r control.Request) control.Reply {
		if r.Do == control.Status {
			return control.Reply{OK: true, PID: 7, Text: "Redis away for 42s: EOF; running, 1 worker"}
		}
		<-ctx.Done()
		return control.Reply{}
	})
	h := newHost(t, nil)
	_, stderr, code := h.run(t, nil, "reload", "--socket", path, "--timeout", "10ms")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "resqued: no verdict after 10ms\n")
	require.Contains(t, stderr, "process 7 says: Redis away for 42s: EOF; running, 1 worker. It is still carried out")
}
