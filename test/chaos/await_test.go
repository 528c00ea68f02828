package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// A wait does not count time in which the machine was overloaded or stopped.
func TestAwait(t *testing.T) {
	t.Parallel()
	c := newChaos(options{})
	never := func() bool { return false }
	require.ErrorContains(t, c.await(t.Context(), time.Millisecond, "what never comes", never), "in vain for what never comes")
	now := procfs.BootTime()
	require.LessOrEqual(t, c.left(now-2*time.Second, time.Second), -time.Second)
	c.history.Starved = []check.Span{{From: now - time.Hour, To: now - time.Second}}
	require.Positive(t, c.left(now-2*time.Second, time.Minute)-58*time.Second-500*time.Millisecond)
	c.history.Starved = nil
	c.history.Faults = []check.Fault{{Kind: check.Stall, From: now - time.Hour, To: now}}
	require.Positive(t, c.left(now-2*time.Second, time.Minute)-58*time.Second-500*time.Millisecond)
	require.Negative(t, c.left(now-mostPatience, time.Minute), "but not for ever")
	// That becomes known only during the wait.
	c.history.Faults = nil
	require.NoError(t, c.await(t.Context(), 20*time.Millisecond, "the machine", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.history.Starved = []check.Span{{From: now, To: now + time.Hour}}
		return procfs.BootTime()-now > 200*time.Millisecond
	}))
}
