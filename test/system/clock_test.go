package system_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestRedisClockGoesForward sets Redis's clock forward while jobs hold locks. By the new clock
// their leases and locks have expired, but no other process may take them.
func TestRedisClockGoesForward(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t, redistest.Options{Clock: true})
	o := harness.Options{
		App: true, Workers: 2, Threads: 4, Redis: server, Trace: t.TempDir(), Env: []string{longKill}, Config: shortLease,
	}
	d := harness.Start(t, o)
	o.Namespace = d.Space
	other := harness.Start(t, o)
	// For each kind, one job runs and others wait for its lock.
	const kinds = 3
	for range 3 {
		d.Push("mail", "Act", harness.Range(1, kinds)...)
	}
	d.AwaitNoted("started", kinds)

	for range 2 {
		server.StepClock(t, time.Hour)
		// Wait until every process has sent a beat and the waiting jobs have been looked at
		// since.
		proctest.Await(t, patience, func() bool {
			now := float64(d.Client.Time(ctx).Val().UnixMilli())
			leases := d.Client.ZRangeWithScores(ctx, d.Key("resqued:procs"), 0, -1).Val()
			for _, l := range leases {
				if l.Score < now {
					return false
				}
			}
			return len(leases) == 4
		}, "a beat of every process")
		ran := len(d.Noted("ran"))
		d.Push("low", "Count", 1000+ran)
		d.AwaitNoted("ran", ran+1)
		proctest.Await(t, patience, func() bool { return len(lockValues(t, d)) == kinds }, "the locks")
	}
	d.AwaitLog("redis's clock was set forward")
	for id := range kinds {
		require.Equal(t, "1", d.Noted("started")[strconv.Itoa(id+1)], "job %d has a lock that another one holds", id+1)
	}
	require.False(t, told(t, d))
	d.Open()
	d.AwaitProcessed(3*kinds+2, patience)
	requireExclusion(t, holdsOf(t, readTrace(t, d.Trace)))
	require.Empty(t, d.Failures())
	requireNoLocks(t, d)
	for _, d := range []*harness.Daemon{d, other} {
		d.Signal(quit)
		require.Zero(t, d.Exit())
	}
	require.Empty(t, d.Residue())
}
