package longstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// Runs are counted by status, not more than one asks for, and other keys do no harm.
func TestStatuses(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		ns, ctx, client := redistest.Namespace(t), t.Context(), server.Client(t)
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: ns, Lease: time.Hour, LockTTL: store.DefaultLease})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		long := longstore.New(s.Redis())
		count := func(most int64) longstore.Statuses {
			v, err := long.Statuses(ctx, most)
			require.NoError(t, err)
			return v
		}
		require.Empty(t, count(10).Runs)
		for i := range 7 {
			_, err := long.AddRuns(ctx, longstore.Always, []longstore.NewRun{{UUID: fmt.Sprint(i), Kind: fmt.Sprint("k", i), Class: "L", Args: []byte("[]"), Queue: "q"}})
			require.NoError(t, err)
		}
		for i := range 3 {
			require.NoError(t, long.Cancel(ctx, fmt.Sprint(i), time.Hour))
		}
		require.Equal(t, longstore.Statuses{Runs: map[string]int64{"queued": 4, "cancelled": 3}}, count(100))
		require.Equal(t, longstore.Statuses{Runs: map[string]int64{"queued": 4, "cancelled": 1}, Rest: 2}, count(5), "those that run come first")
		require.Equal(t, longstore.Statuses{Runs: map[string]int64{"queued": 2}, Rest: 5}, count(2))
		require.NoError(t, client.Del(ctx, ns+":resqued:longjob:run:6").Err())
		require.NoError(t, client.Set(ctx, ns+":resqued:longjob:run:6", "no run", 0).Err())
		require.NoError(t, client.ZAdd(ctx, ns+":resqued:longjob:ended", redis.Z{Score: 1, Member: "forgotten"}).Err())
		require.Equal(t, longstore.Statuses{Runs: map[string]int64{"queued": 3, "cancelled": 3}}, count(100))
		require.NoError(t, client.Del(ctx, ns+":resqued:longjob:ended").Err())
		require.NoError(t, client.Set(ctx, ns+":resqued:longjob:ended", "no set", 0).Err())
		_, err = long.Statuses(ctx, 100)
		require.ErrorContains(t, err, "count long jobs")
	})
}
