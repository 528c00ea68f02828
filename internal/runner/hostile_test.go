//go:build linux

package runner

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/jobctx"
)

// A line that a dead process has not read does not show whether it has begun the job.
func TestDiesWithALineUnread(t *testing.T) {
	t.Parallel()
	f := setup(t, false, 1, "")
	ended := make(chan error, 1)
	go func() { ended <- f.run(t.Context(), "Deaf", f.path("begun"), f.path("die")) }()
	first := f.read(t, "begun")
	f.Tell(true)
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		q := f.processes[0]
		return q.paused && !q.informing
	}, soon, time.Millisecond, "the line is written")
	require.NoError(t, os.WriteFile(f.path("die"), []byte("now"), 0o600))
	var death *jobctx.DeathError
	require.ErrorAs(t, <-ended, &death)
	require.Equal(t, first, f.read(t, "begun"), "no other process has got it")
}

// A process with a cancelled job gets no others: it would put them back, again and again.
func TestCancelledProcessGetsNoJobs(t *testing.T) {
	t.Parallel()
	for _, fork := range []bool{false, true} {
		f := setup(t, fork, 4, "")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.run(ctx, "Obstinate", f.path("begun"), f.path("told"), f.path("end")) }()
		old := f.read(t, "begun")
		cancel()
		require.Equal(t, old, f.read(t, "told"))
		for range 5 {
			require.NoError(t, f.run(t.Context(), "Echo"))
		}
		require.NotEqual(t, old, f.pid(t))
		require.NoError(t, os.WriteFile(f.path("end"), []byte("now"), 0o600))
		require.NoError(t, <-ended)
	}
}

// An incomplete line holds up neither a job nor the end.
func TestHalfALine(t *testing.T) {
	t.Parallel()
	for _, fork := range []bool{false, true} {
		f := setup(t, fork, 1, "", func(o *Options) { o.lineFor = 10 * time.Millisecond })
		require.NoError(t, f.run(t.Context(), "Half", f.path("half")))
		old := f.read(t, "half")
		f.changes(t, old)
		require.Eventually(t, func() bool { return !exists(old) }, soon, time.Millisecond)
	}

	f := setup(t, false, 4, "", func(o *Options) { o.tick, o.lineFor = time.Millisecond, 10*time.Millisecond })
	require.NoError(t, f.run(t.Context(), "Half", f.path("half")))
	old := f.read(t, "half")
	require.Eventually(t, func() bool { return !exists(old) }, soon, time.Millisecond, "no other job need come")
}

// Endless output holds up neither a job nor the end.
func TestChatters(t *testing.T) {
	t.Parallel()
	f := setup(t, false, 1, "", func(o *Options) { o.tick, o.KillAfter = time.Millisecond, 100*time.Millisecond })
	require.NoError(t, f.run(t.Context(), "Chatters", f.path("begun")))
	f.read(t, "begun")
	require.NoError(t, f.run(t.Context(), "Echo"))
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		f.Close()
	}()
	select {
	case <-closed:
	case <-time.After(soon):
		require.Fail(t, "it does not close")
	}
}
