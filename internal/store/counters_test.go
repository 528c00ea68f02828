package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestCounterOfAQueueThatNobodyLooksAt: as long as a queue counts locked jobs no job of any
// queue takes the fast path. One that is not looked at for a minute counts none.
func TestCounterOfAQueueThatNobodyLooksAt(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[1]"), job("A", "[1]"))
		require.Len(t, f.reserve(2, "q"), 1)
		counted := func() bool {
			_, _, err := f.Orphans(t.Context())
			require.NoError(t, err)
			return f.exists("locket:queue_lock_counters")
		}
		require.True(t, counted(), "it has just been looked at")
		require.InDelta(t, 60, f.redis.TTL(t.Context(), f.key("resqued:seen:q")).Val().Seconds(), 30)
		f.redis.Del(t.Context(), f.key("resqued:seen:q")) // as after that time
		require.False(t, counted())
	})
}
