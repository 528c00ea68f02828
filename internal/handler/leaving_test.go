package handler_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/jobctx"
)

func onLeaving(s syscall.Signal) func(*handler.Options, *resqued.Class) {
	return func(_ *handler.Options, c *resqued.Class) { c.Command.OnLeaving = s }
}

// left returns a context whose job should make room.
func left(t *testing.T) context.Context {
	t.Helper()
	leaving, leave := context.WithCancel(t.Context())
	leave()
	return jobctx.WithLeaving(t.Context(), leaving)
}

// A command is asked to make room by its signal, and its exit code decides as usual.
func TestOnLeaving(t *testing.T) {
	t.Parallel()
	var requeue *resqued.RequeueError

	t.Run("the command alone gets it", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `sleep 1000 & child=$!; trap 'kill -0 $child && exit 75; exit 9' USR2; while :; do sleep 0.01; done`, onLeaving(unix.SIGUSR2))
		require.ErrorAs(t, f.run(left(t)), &requeue)
	})
	t.Run("after max_run", func(t *testing.T) {
		t.Parallel()
		f := setup(t, `trap 'exit 0' USR1; while :; do sleep 0.01; done`, onLeaving(unix.SIGUSR1), func(_ *handler.Options, c *resqued.Class) { c.MaxRun = time.Millisecond })
		require.NoError(t, f.run(t.Context()))
	})
	t.Run("no signal that cannot be caught", func(t *testing.T) {
		t.Parallel()
		for _, s := range []syscall.Signal{-1, unix.SIGKILL, unix.SIGSTOP, 1000} {
			_, err := handler.New(resqued.New(), handler.Options{Commands: map[string]resqued.Class{"Run": {Command: &resqued.Command{Argv: []string{"true"}, OnLeaving: s}}}})
			require.ErrorContains(t, err, "cannot ask it to make room")
		}
	})
}

// A program that does not catch the signal yet would die.
func TestOnLeavingWaitsUntilItIsCaught(t *testing.T) {
	t.Parallel()
	script := `echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; `
	for name, c := range map[string]struct {
		script, want string
		kill         bool
	}{
		"then it gets it":        {script: `trap 'exit 100' USR2; while :; do sleep 0.01; done`, want: "exited with code 100"},
		"unless it ends before":  {script: `exit 3`, want: "exit code 3"},
		"unless its job is over": {script: `sleep 1000`, want: "ended by SIGTERM", kill: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, script+c.script, onLeaving(unix.SIGUSR2))
			ctx, cancel := context.WithCancelCause(left(t))
			defer cancel(nil)
			done := f.start(ctx)
			f.pid(t, "pid")
			require.Eventually(t, func() bool { return f.logs.FilterMessageSnippet("does not catch the signal of on_leaving").Len() == 1 }, soon, time.Millisecond)
			if c.kill {
				cancel(resqued.ErrKilled)
			}
			require.NoError(t, os.WriteFile(filepath.Join(f.dir, "go"), nil, 0o600))
			require.ErrorContains(t, wait(t, done), c.want)
		})
	}
}
