package proc

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/mark"
	"github.com/resqued/resqued/internal/sys/procfs"
)

// unique avoids the remains of an earlier, broken run.
func unique(name string) string { return fmt.Sprintf("%s-%d", name, os.Getpid()) }

// marked returns how many living processes the worker process name has, itself included.
func marked(name string) (n int) {
	names, _ := os.ReadDir("/proc")
	for _, dir := range names {
		pid, err := strconv.Atoi(dir.Name())
		if m, no := mark.Of(pid); err != nil || no != nil || m.Worker() != mark.Worker(name) {
			continue
		}
		if s, err := procfs.ReadStat(pid); err == nil && !s.Dead() {
			n++
		}
	}
	return n
}

// A killed worker process may take long to end. Its descendants must not live as long.
func TestSweepBelowALivingProcess(t *testing.T) {
	t.Parallel()
	name, other := unique("p-slow"), unique("p-slow-2")
	c := spawned(t, name, act{Act: "tree"})
	d := spawned(t, other, act{Act: "tree"})
	hello(t, c)
	hello(t, d)
	for _, name := range []string{name, other} {
		require.Eventually(t, func() bool { return marked(name) == 5 }, 30*time.Second, 10*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	killed, err := c.Sweep(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, killed)
	require.Equal(t, 1, marked(name), "it lives itself")
	require.Equal(t, 5, marked(other))

	// Again when it is gone.
	require.NoError(t, c.Kill())
	c.Wait()
	killed, err = c.Sweep(ctx)
	require.NoError(t, err)
	require.Zero(t, killed)
	require.Equal(t, 5, marked(other))
	_, err = Sweep(ctx, other)
	require.NoError(t, err)
}

func TestSweepOfAMaster(t *testing.T) {
	t.Parallel()
	m := start(t, "sweep")
	require.Equal(t, "true false 5 <nil> 0 5", m.Line(t))
	require.Equal(t, "EOF", m.Line(t), "by then it has ended all that it had started")
}

// Its master identifies a worker process until it was reaped: then its pid may be reused.
func TestWorkerProcessesAreKnownUntilTheyAreWaitedFor(t *testing.T) {
	t.Parallel()
	name := unique("p-known")
	c := spawned(t, name, act{Act: "deaf"})
	hello(t, c)
	st, err := procfs.ReadStat(c.PID())
	require.NoError(t, err)
	id := procfs.ID{PID: c.PID(), Start: st.Start}
	known, ok := procfs.Spawned(id)
	require.True(t, ok)
	require.Equal(t, name, known)
	require.NoError(t, c.Kill())
	c.Wait()
	_, ok = procfs.Spawned(id)
	require.False(t, ok)
}
