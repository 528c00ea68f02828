package longstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestLongFenceJunk: a run with invalid numbers goes on.
func TestLongFenceJunk(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, junk := range []string{"junk", "nan", "9223372036854775807", "1e300", "-9"} {
			t.Run(junk, func(t *testing.T) {
				ns := redistest.Namespace(t)
				s, err := store.Open(store.Options{URL: server.URL(), Namespace: ns, Lease: time.Hour, LockTTL: store.DefaultLease})
				require.NoError(t, err)
				defer func() { require.NoError(t, s.Close()) }()
				storetest.Patient(s.Redis())
				long := longstore.New(s.Redis())
				require.NoError(t, s.Register(t.Context(), store.Registration{Proc: "p1", Workers: []string{"h/0.0:1:q"}, Started: "now"}))
				_, err = long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{{UUID: "1", Kind: "k", Class: "L", Args: []byte("[]"), Queue: "q"}})
				require.NoError(t, err)
				reply, err := s.Exchange(t.Context(), store.ExchangeRequest{
					Proc: "p1", Master: "m", Wants: []store.Want{{Token: "1", Worker: "h/0.0:1:q"}}, Queues: []store.Queue{{Name: "q", Locked: true}},
				})
				require.NoError(t, err)
				require.Len(t, reply.Jobs, 1)
				require.NoError(t, server.Client(t).HSet(t.Context(), ns+":resqued:longjob:run:1", "fence", junk, "deaths", junk).Err())
				record, err := long.Begin(t.Context(), longstore.Slice{UUID: "1", Number: 1, Run: rdb.RunName{Proc: "p1", Token: "1"}})
				require.NoError(t, err)
				require.Greater(t, record.Number("fence"), int64(1e15))
				require.Less(t, record.Number("fence"), int64(9e15))
				require.EqualValues(t, 0, record.Number("deaths"))
			})
		}
	})
}
