package handler

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/launch"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// A command can be killed at the moment of its start, before it leads its group.
func TestKillAtTheStart(t *testing.T) {
	testlevel.Integration(t)
	t.Parallel()
	r := newRunner(Options{Log: zap.NewNop()})
	t.Cleanup(r.launcher.Close)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(resqued.ErrKilled)
	for range 200 {
		// In the future: with more than slowOpening elapsed, its error would be that it never
		// began.
		p := &process{runner: r, log: r.log, began: time.Now().Add(time.Hour)}
		p.leader, err = r.launcher.Start(launch.Program{Argv: []string{"sleep", "20"}, Files: []*os.File{null, null, null}})
		require.NoError(t, err)
		status, how, err := p.wait(ctx, 0, nil)
		require.NoError(t, err)
		require.True(t, how.killed)
		require.Contains(t, []unix.Signal{unix.SIGTERM, unix.SIGKILL}, status.Signal())
	}
}
