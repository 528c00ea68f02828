package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressBar(t *testing.T) {
	t.Parallel()
	// run reports a count each 50 ms of a clock.
	run := func(p *progressBar, total int, lasts time.Duration) string {
		var out bytes.Buffer
		p.stderr, p.what, p.total = &out, "enqueued", total
		clock := time.Unix(1000, 0)
		p.began, p.now = clock, func() time.Time { return clock }
		for at := time.Duration(0); at < lasts; at += 50 * time.Millisecond {
			clock = time.Unix(1000, 0).Add(at)
			p.at(int(at / time.Millisecond))
		}
		p.done()
		return out.String()
	}
	require.Empty(t, run(&progressBar{terminal: true}, 1000, 900*time.Millisecond), "it is over in no time")
	require.Empty(t, run(&progressBar{terminal: true, silent: true}, 1000, time.Minute))
	got := run(&progressBar{terminal: true}, 4000, 2*time.Second)
	require.Equal(t, 5, strings.Count(got, "\x1b[K")-1, "five a second: %q", got)
	require.Contains(t, got, "\r[=====               ] enqueued 1,000 of 4,000, 1000.0/s, 3s left\x1b[K")
	require.True(t, strings.HasSuffix(got, "\r\x1b[K"), "nothing is left of it")
	got = run(&progressBar{}, 0, 35*time.Second)
	require.Equal(t, "enqueued 10,000, 1000.0/s\nenqueued 20,000, 1000.0/s\nenqueued 30,000, 1000.0/s\n", got)
}

// TestInterrupted: the first signal ends the context, not the program.
func TestInterrupted(t *testing.T) {
	ctx, stop := interruptible(t.Context())
	defer stop()
	require.NoError(t, interrupted(ctx, nil))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	<-ctx.Done()
	require.ErrorIs(t, interrupted(ctx, fmt.Errorf("move: %w", ctx.Err())), errInterrupted)
	require.ErrorIs(t, interrupted(ctx, io.EOF), io.EOF)
}
