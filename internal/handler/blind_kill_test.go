package handler_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/testkit/proctest"
)

// Even with few descriptors, a job does not end before all processes of its command are gone.
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
				end := proctest.FlickerFiles(t, 2*time.Millisecond)
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
