//go:build unix

package longjob_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/longjob"
)

func TestLost(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var done []int
	longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ int) error {
		return longjob.WorkEach(ctx, r, "e", []int{1, 2, 3}, func(_ context.Context, i int) error {
			done = append(done, i)
			if len(done) == 2 {
				return b.dies()
			}
			return nil
		})
	}, longjob.Options{Queue: "q"})
	sweeper := longstore.NewSweeper(b.long, zap.NewNop(), longstore.Limits{Running: -time.Hour, Queued: -time.Hour})
	look := func() { require.NoError(t, sweeper.Sweep(t.Context())) }
	sweep := func() { look(); look() }
	uuid := b.enqueue("L", 1)
	sweep()
	require.Equal(t, 1, b.run(uuid).Slice, "one that waits is not lost")
	b.crowd("q", 2500)
	sweep()
	require.Equal(t, 1, b.run(uuid).Slice, "nor one that waits among many")
	payload := b.redis.LIndex(t.Context(), b.ns+":queue:q", 2500).Val()
	require.Contains(t, payload, uuid)
	require.NoError(t, b.redis.Del(t.Context(), b.ns+":queue:q").Err()) // as if another program had popped it
	look()
	require.Equal(t, 1, b.run(uuid).Slice, "it may be on its way")
	require.NoError(t, b.redis.RPush(t.Context(), b.ns+":queue:q", payload).Err())
	sweep()
	require.Equal(t, 1, b.run(uuid).Slice, "and has come")
	require.NoError(t, b.redis.Del(t.Context(), b.ns+":queue:q").Err())
	sweep()
	require.Equal(t, 2, b.run(uuid).Slice)
	require.EqualValues(t, 1, b.redis.LLen(t.Context(), b.ns+":queue:q").Val())

	k := b.take("q")
	result := make(chan error, 1)
	go func() { result <- k.perform() }()
	<-b.crashed
	sweep()
	require.Equal(t, longjob.StatusRunning, b.run(uuid).Status, "one that runs is not lost")
	// Its process dies, and its job is thrown away.
	_, _, err := b.store.Fence(t.Context(), k.proc, true)
	require.NoError(t, err)
	require.NoError(t, b.store.Recover(t.Context(), k.proc, []store.Verdict{{Token: "t", Action: store.Fail, Failure: store.Record([]byte("{}"))}}))
	b.buried <- struct{}{}
	require.Error(t, <-result)
	sweep()
	require.Equal(t, 1, b.work("q"))
	require.Equal(t, []int{1, 2, 2, 3}, done)
	require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
}

// crowd adds other jobs before and after the jobs in a queue.
func (b *bed) crowd(queue string, n int) {
	b.t.Helper()
	jobs := make([]any, n)
	for i := range jobs {
		jobs[i] = fmt.Sprintf(`{"class":"X","args":[{"n":%d}]}`, i)
	}
	require.NoError(b.t, b.redis.LPush(b.t.Context(), b.ns+":queue:"+queue, jobs...).Err())
	require.NoError(b.t, b.redis.RPush(b.t.Context(), b.ns+":queue:"+queue, jobs...).Err())
}

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
