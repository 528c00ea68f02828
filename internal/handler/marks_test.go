//go:build linux

package handler_test

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/resqued/resqued/internal/handler"
)

// Numbers of runs are reused. Descendants of a command must not look like another run's with the
// same number.
func TestMarksComeRound(t *testing.T) {
	// The first run has a process in the background while the second one lasts.
	f := setup(t, `if mkdir first 2>/dev/null; then
			echo > began; while [ ! -e go ]; do sleep 0.01; done
			(setsid env -i sh -c 'echo $$ > pid; exec sleep 1000' &) ; while [ ! -e over ]; do sleep 0.01; done
		else
			echo > go; while [ ! -s pid ]; do sleep 0.01; done
		fi`)
	done := f.start(t.Context())
	f.read(t, "began")
	handler.SkipRuns(math.MaxUint16 - 1)
	require.NoError(t, f.run(t.Context()))
	pid := f.pid(t, "pid")
	require.False(t, gone(pid), "another run has killed it")
	require.NoError(t, os.WriteFile(f.dir+"/over", nil, 0o600))
	require.NoError(t, wait(t, done))
	require.True(t, gone(pid))
}

// If the service limits file locks, that limit is not a mark, whatever its value.
func TestNothingIsLeftBehindWithLimitedLocks(t *testing.T) {
	if !limited(t) {
		return
	}
	// A hard limit can only be lowered.
	for _, limit := range []uint64{1 << 40, 100_000, 1000} {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: limit, Max: limit}))
		f := setup(t, `(setsid sh -c 'echo $$ > pid; exec sleep 1000' &) ; while [ ! -s pid ]; do sleep 0.01; done`)
		require.NoError(t, f.run(t.Context()))
		require.True(t, gone(f.pid(t, "pid")), "with a limit of %d", limit)
	}
}
