package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestNamesOfEmptyQueuesGo: names of unused queues are removed. A job pushed in Ruby's two
// steps, the first before the removal, still runs.
func TestNamesOfEmptyQueuesGo(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 2, Queues: "named,*", Config: "prune_queues: 1s\n" +
		"schedule: {yearly: {cron: '0 0 1 1 *', class: Count, queue: scheduled}}\n"})
	ctx := t.Context()
	names := func() []string { return d.Client.SMembers(ctx, d.Key("queues")).Val() }
	d.Push("named", "Count", 1)
	d.Push("used", "Count", 2)
	require.NoError(t, d.Client.Set(ctx, d.Key("pause:queue:paused"), "true", 0).Err())
	require.NoError(t, d.Client.SAdd(ctx, d.Key("queues"), "paused", "tenant-1", "tenant-2", "scheduled", "two-steps").Err())
	d.AwaitNoted("ran", 2)
	proctest.Await(t, patience, func() bool { return len(names()) == 3 }, "the names of empty queues to go: %v", names())
	require.ElementsMatch(t, []string{"named", "paused", "scheduled"}, names())
	d.AwaitLog("removed the names of queues")
	events, _, code := d.Run("events", "--kind", "removed")
	require.Zero(t, code)
	require.Contains(t, events, "names of queues")

	// The second step of the push. Nothing else says that the queue exists.
	require.NoError(t, d.Client.RPush(ctx, d.Key("queue:two-steps"), fmt.Sprintf(`{"class":"Count","args":[%d]}`, 3)).Err())
	d.AwaitNoted("ran", 3)

	// One whose name was removed long ago.
	require.NoError(t, d.Client.ZAdd(ctx, d.Key("resqued:pruned"), redis.Z{Score: float64(time.Now().Add(-30 * 24 * time.Hour).UnixMilli()), Member: "monthly"}).Err())
	require.NoError(t, d.Client.RPush(ctx, d.Key("queue:monthly"), `{"class":"Count","args":[4]}`).Err())
	d.AwaitNoted("ran", 4)
}
