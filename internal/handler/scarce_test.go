package handler_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// limited runs the test in a process of its own, so that it may change limits.
func limited(t *testing.T) (here bool) {
	t.Helper()
	testlevel.Integration(t)
	if os.Getenv("HANDLER_TEST_LIMITED") != "" {
		return true
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	// It has a name of its own: its commands are descendants of this process, too, which would
	// take those with the same name for remains of its own.
	cmd.Env = append(os.Environ(), "HANDLER_TEST_LIMITED=:"+t.Name())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return false
}

// files sets how many files this process may have open, and returns how many it had.
func files(t *testing.T, n uint64) uint64 {
	t.Helper()
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: had.Max}))
	return had.Cur
}

// open returns the lowest descriptor that is free.
func open(t *testing.T) uint64 {
	t.Helper()
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	return uint64(f.Fd())
}

// Scarce resources of the machine are not the job's fault.
func TestJobsWaitForDescriptors(t *testing.T) {
	if !limited(t) {
		return
	}
	f := setup(t, `echo ran >> ran`)
	require.NoError(t, f.run(t.Context()))
	few := open(t)
	// The job's file, a pipe, the pipes, and those for the start.
	for more := range uint64(9) {
		had := files(t, few+more)
		f.Patience(time.Hour)
		ended := f.start(t.Context())
		select {
		case err := <-ended:
			require.NoError(t, err, more) // enough
		case <-time.After(100 * time.Millisecond):
		}
		files(t, had)
		require.NoError(t, wait(t, ended), more)
	}
	require.Equal(t, 1, f.logs.FilterMessageSnippet("their jobs wait").Len(), "it is said now and then")
	ran, err := os.ReadFile(f.dir + "/ran")
	require.NoError(t, err)
	require.Len(t, ran, 10*len("ran\n"), "each once")
}

func TestJobsThatHaveWaitedGoBack(t *testing.T) {
	if !limited(t) {
		return
	}
	f := setup(t, `exit 0`, func(_ *handler.Options, c *resqued.Class) { c.Timeout = time.Second })
	few := open(t)
	var requeue *resqued.RequeueError

	f.Patience(10 * time.Millisecond)
	had := files(t, few)
	err := f.run(t.Context())
	files(t, had)
	require.ErrorAs(t, err, &requeue)
	require.Positive(t, requeue.After)

	// A job that has not begun has not exceeded its limit.
	f.Patience(time.Hour)
	had = files(t, few)
	err = f.run(t.Context())
	files(t, had)
	require.ErrorAs(t, err, &requeue)

	// The kill decides.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(resqued.ErrKilled)
	require.ErrorIs(t, f.run(ctx), resqued.ErrKilled)
	had = files(t, few)
	ctx, cancel = context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(resqued.ErrKilled) })
	err = f.run(ctx)
	files(t, had)
	require.ErrorIs(t, err, resqued.ErrKilled)
}
