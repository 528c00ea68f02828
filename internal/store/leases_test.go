package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

// A daemon whose own lease is short does not cut the leases of others.
func TestLeasesOfOthers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		var opts store.Options
		f := setup(t, server, func(o *store.Options) { o.Lease = store.DefaultLease; opts = *o })
		opts.Lease, opts.BeatEvery, opts.LockTTL = 2*time.Second, 500*time.Millisecond, 2*time.Second
		other, err := store.Open(opts)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, other.Close()) })
		f.beat("p1")
		before := f.redis.ZScore(t.Context(), f.key("resqued:procs"), "p1").Val()
		procs, _, err := other.Orphans(t.Context())
		require.NoError(t, err)
		require.Empty(t, procs)
		require.GreaterOrEqual(t, f.redis.ZScore(t.Context(), f.key("resqued:procs"), "p1").Val(), before)
	})
}
