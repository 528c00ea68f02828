package longstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/storetest"
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
