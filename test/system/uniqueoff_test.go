package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/system/harness"
)

// TestUniqueQueueTurnedOff runs a daemon without unique queues on the keys of one. All due jobs
// run, equal ones too, and the keys of the unique queue do not grow beyond its jobs.
func TestUniqueQueueTurnedOff(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true})
	ctx := t.Context()
	job := func(n int) string { return fmt.Sprintf(`{"class":"Count","args":[%d]}`, n) }
	for n := range 3 {
		require.NoError(t, d.Client.SAdd(ctx, d.Key("queue:mail:uniqueue"), job(n)).Err())
		require.NoError(t, d.Client.RPush(ctx, d.Key("queue:mail:start_at"), 1000).Err())
	}
	var items []any
	for range 3 { // of each three, of which a unique queue would take one
		for n := range 5 {
			items = append(items, fmt.Sprintf(`{"class":"Count","args":[%d],"queue":"mail"}`, n))
		}
	}
	require.NoError(t, d.Client.RPush(ctx, d.Key("delayed:1000"), items...).Err())
	require.NoError(t, d.Client.ZAdd(ctx, d.Key("delayed_queue_schedule"), redis.Z{Score: 1000, Member: 1000}).Err())
	require.Eventually(t, func() bool {
		return d.Client.Get(ctx, d.Key("stat:processed")).Val() == "15"
	}, time.Minute, 20*time.Millisecond)
	require.LessOrEqual(t, d.Client.SCard(ctx, d.Key("queue:mail:uniqueue")).Val(), int64(5))
	require.LessOrEqual(t, d.Client.LLen(ctx, d.Key("queue:mail:start_at")).Val(), int64(5))
}
