package longstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestRunOfAnotherFormat: a run that another version has written is neither begun nor resumed.
func TestRunOfAnotherFormat(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		ns := redistest.Namespace(t)
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: ns, Lease: time.Hour, LockTTL: store.DefaultLease})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		storetest.Patient(s.Redis())
		client := server.Client(t)
		long := longstore.New(s.Redis())
		require.NoError(t, s.Register(t.Context(), store.Registration{Proc: "p1", Workers: []string{"h/0.0:1:q"}, Started: "now"}))
		_, err = long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{{UUID: "1", Kind: "k", Class: "L", Args: []byte("[]"), Queue: "q"}})
		require.NoError(t, err)
		reply, err := s.Exchange(t.Context(), store.ExchangeRequest{
			Proc: "p1", Master: "m", Wants: []store.Want{{Token: "1", Worker: "h/0.0:1:q"}}, Queues: []store.Queue{{Name: "q"}},
		})
		require.NoError(t, err)
		require.Len(t, reply.Jobs, 1)
		key := ns + ":resqued:longjob:run:1"
		slice := longstore.Slice{UUID: "1", Number: 1, Run: rdb.RunName{Proc: "p1", Token: "1"}}
		for _, format := range []string{"99", "0", "odd"} {
			require.NoError(t, client.HSet(t.Context(), key, "format", format).Err())
			before := client.HGetAll(t.Context(), key).Val()
			_, err = long.Begin(t.Context(), slice)
			require.ErrorIs(t, err, longstore.ErrUnread)
			run, err := long.Run(t.Context(), "1")
			require.NoError(t, err)
			require.ErrorIs(t, long.Again(t.Context(), run, true), longstore.ErrUnread)
			require.Equal(t, before, client.HGetAll(t.Context(), key).Val())
		}
		require.NoError(t, client.HSet(t.Context(), key, "format", rdb.Known().Writes).Err())
		_, err = long.Begin(t.Context(), slice)
		require.NoError(t, err)
	})
}

// TestRunsOfAnotherFormatHideNone: lost runs that another version has written do not keep those
// that can be read from being resumed, however many they are.
func TestRunsOfAnotherFormatHideNone(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		ns := redistest.Namespace(t)
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: ns, Lease: time.Hour, LockTTL: store.DefaultLease})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		storetest.Patient(s.Redis())
		client := server.Client(t)
		long := longstore.New(s.Redis())
		var runs []longstore.NewRun
		for i := range 251 {
			id := strconv.Itoa(i)
			runs = append(runs, longstore.NewRun{UUID: id, Kind: "k" + id, Class: "L", Args: []byte("[]"), Queue: "q"})
		}
		_, err = long.AddRuns(t.Context(), longstore.Always, runs)
		require.NoError(t, err)
		require.NoError(t, client.Del(t.Context(), ns+":queue:q").Err())
		for i, r := range runs {
			key := ns + ":resqued:longjob:run:" + r.UUID
			require.NoError(t, client.HSet(t.Context(), key, "seen", 1).Err())
			require.NoError(t, client.ZAdd(t.Context(), ns+":resqued:longjob:active", redis.Z{Score: float64(1 + i), Member: r.UUID}).Err())
			if i < 250 {
				require.NoError(t, client.HSet(t.Context(), key, "format", 99).Err())
			}
		}
		sweeper := longstore.NewSweeper(long, zap.NewNop(), longstore.Limits{Running: time.Second, Queued: time.Second})
		require.NoError(t, sweeper.Sweep(t.Context()))
		require.NoError(t, sweeper.Sweep(t.Context()))
		require.Equal(t, []string{string(longstore.Payload("L", "250", 2))}, client.LRange(t.Context(), ns+":queue:q", 0, -1).Val())
		for i, z := range client.ZRangeWithScores(t.Context(), ns+":resqued:longjob:active", 0, 249).Val() {
			require.InDelta(t, 1+i, z.Score, 0, "another version looks for it")
		}
	})
}
