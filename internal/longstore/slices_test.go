package longstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestSlicesAreNoted: each slice that has ended stands among those of its run, and nothing that stands
// there instead is in the way of the run.
func TestSlicesAreNoted(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		ns, ctx, client := redistest.Namespace(t), t.Context(), server.Client(t)
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: ns, Lease: time.Hour, LockTTL: store.DefaultLease})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		long, key := longstore.New(s.Redis()), ns+":resqued:longjob:slices:1"
		_, err = long.AddRuns(ctx, longstore.Always, []longstore.NewRun{{UUID: "1", Kind: "k", Class: "L", Args: []byte("[]"), Queue: "q"}})
		require.NoError(t, err)
		taken := 0
		// take has a process begin a slice.
		take := func(proc string, number int64) (longstore.Slice, store.Reserved) {
			require.NoError(t, s.Register(ctx, store.Registration{Proc: proc, Workers: []string{proc + "/0.0:1:q"}, Started: "now"}))
			taken++
			token := strconv.Itoa(taken)
			reply, err := s.Exchange(ctx, store.ExchangeRequest{
				Proc: proc, Master: "m", Sending: int64(taken), Wants: []store.Want{{Token: token, Worker: proc + "/0.0:1:q"}}, Queues: []store.Queue{{Name: "q"}},
			})
			require.NoError(t, err)
			require.Len(t, reply.Jobs, 1)
			slice := longstore.Slice{UUID: "1", Number: number, Run: rdb.RunName{Proc: proc, Token: token}}
			record, err := long.Begin(ctx, slice)
			require.NoError(t, err)
			slice.Fence = record.Number("fence")
			return slice, reply.Jobs[0]
		}
		end := func(slice longstore.Slice, job store.Reserved, op longstore.Op, units int) {
			_, err := long.Save(ctx, longstore.Save{Slice: slice, Op: op, Class: "L", Queue: "q", Keep: time.Hour, Fields: map[string]string{"units": strconv.Itoa(units)}})
			require.NoError(t, err)
			taken++
			_, err = s.Exchange(ctx, store.ExchangeRequest{Proc: slice.Run.Proc, Master: "m", Sending: int64(taken), Completions: []store.Completion{{Job: &job, Kind: store.Done}}})
			require.NoError(t, err)
		}
		slice, job := take("p1", 1)
		end(slice, job, longstore.Yields, 30)
		take("p1", 2) // and dies
		held, _, err := s.Fence(ctx, "p1", true)
		require.NoError(t, err)
		require.NoError(t, s.Recover(ctx, "p1", []store.Verdict{{Token: held[0].Token, Action: store.Requeue}}))
		slice, job = take("p2", 2)
		end(slice, job, longstore.Yields, 50)

		slices, err := long.Slices(ctx, "1")
		require.NoError(t, err)
		require.Len(t, slices, 3)
		for i, want := range []longstore.EndedSlice{
			{Units: 30, Outcome: "yielded", Proc: "p1"}, {Outcome: "died", Proc: "p1"}, {Units: 20, Outcome: "yielded", Proc: "p2"},
		} {
			require.WithinDuration(t, time.Now(), slices[i].Started, time.Minute)
			require.GreaterOrEqual(t, slices[i].Took, time.Duration(0))
			want.Started, want.Took = slices[i].Started, slices[i].Took
			require.Equal(t, want, slices[i])
		}
		require.Positive(t, client.TTL(ctx, key).Val())

		for i := range 300 {
			require.NoError(t, client.RPush(ctx, key, fmt.Sprintf("%d 5 1 yielded p", i), "nonsense", "1 2 x y z", strings.Repeat("9", 50)+" 1 1 a b").Err())
		}
		slice, job = take("p2", 3)
		end(slice, job, longstore.Yields, 60)
		require.EqualValues(t, 200, client.LLen(ctx, key).Val())
		slices, err = long.Slices(ctx, "1")
		require.NoError(t, err)
		require.EqualValues(t, 10, slices[len(slices)-1].Units)

		require.NoError(t, client.Del(ctx, key).Err())
		require.NoError(t, client.Set(ctx, key, "text", 0).Err())
		slice, job = take("p2", 4)
		end(slice, job, longstore.Completed, 61)
		status, err := long.Status(ctx, "1")
		require.NoError(t, err)
		require.Equal(t, "completed", status.Status)
		require.NoError(t, client.ZAdd(ctx, ns+":resqued:longjob:ended", redis.Z{Member: "1"}).Err())
		n, err := long.Forget(ctx, 9)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Zero(t, client.Exists(ctx, key).Val())
	})
}
