package handler_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued"
)

// flicker lets this process open files and not, by turns, until the function that it returns
// is called.
func flicker(t *testing.T) (end func()) {
	t.Helper()
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			for limit := range uint64(2) {
				_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: had.Cur * limit, Max: had.Max})
				// Timers are too coarse. With files it is long enough for some looks to come
				// to their end.
				for until := time.Now().Add(rand.N(time.Duration(200+2000*limit) * time.Microsecond)); time.Now().Before(until); {
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	end = sync.OnceFunc(func() {
		close(stop)
		ended.Wait()
	})
	t.Cleanup(end)
	return end
}

// Also while files can be opened only now and then, a job is not over before nothing of its
// command is left.
func TestNothingIsLeftBehindWhileFilesRunOut(t *testing.T) {
	if !limited(t) {
		return
	}
	const begun = `; while [ ! -s pid ]; do sleep 0.01; done`
	for name, script := range map[string]string{
		"in the group":  `sleep 1000 & echo $! > pid`,
		"marked":        `(setsid env -i sh -c 'echo $$ > pid; exec sleep 1000' &)` + begun,
		"tagged":        `(setsid prlimit --locks=unlimited sh -c 'echo $$ > pid; exec sleep 1000' &)` + begun,
		"between execs": `printf '#!/bin/sh\nexec "$0"\n' > a; chmod +x a; (setsid prlimit --locks=unlimited sh -c 'echo $$ > pid; exec ./a' &)` + begun,
		"between forks": `(setsid prlimit --locks=unlimited sh -c 'echo $$ > pid; while :; do (:); done' &)` + begun,
		"without a tag": `(setsid env -i sh -c 'echo $$ > pid; while :; do (:); done' &)` + begun,
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for began := time.Now(); n < 2 || time.Since(began) < 300*time.Millisecond; n++ {
				f := setup(t, script+"; echo > ready; exec sleep 1000", killAfter(time.Millisecond))
				ctx, cancel := context.WithCancelCause(t.Context())
				done := f.start(ctx)
				left := f.pid(t, "pid")
				t.Cleanup(func() {
					if t.Failed() { // what should be gone may be there, and would not end
						_ = syscall.Kill(left, syscall.SIGKILL)
					}
				})
				f.read(t, "ready")
				end := flicker(t)
				cancel(resqued.ErrKilled)
				err := wait(t, done)
				end()
				require.ErrorIs(t, err, resqued.ErrKilled)
				require.Empty(t, tagged(t, f.dir), "after %d", n)
			}
			t.Logf("%d killed", n)
		})
	}
}
