package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestBoundedWork has very many members stand where there are few: no script goes through
// them all at a time. It counts the commands that Redis carries out.
func TestBoundedWork(t *testing.T) {
	t.Parallel()
	const junk = 400_000
	server := redistest.Start(t, redistest.Options{}) // its figures are those of this test
	f := setup(t, server)
	fill := func(add func(from, to int) error) {
		for from := 0; from < junk; from += 10_000 {
			require.NoError(t, add(from, from+10_000))
		}
	}
	fill(func(from, to int) error {
		var ids, tokens []any
		for i := from; i < to; i++ {
			ids = append(ids, fmt.Sprintf("junk%d", i))
			tokens = append(tokens, fmt.Sprintf("junk%d", i), "x")
		}
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:inflight:p1"), tokens...).Err())
		return f.redis.SAdd(t.Context(), f.key("resqued:masters"), ids...).Err()
	})
	calls := func() int { return server.Commands(t) }
	before := calls()
	_, _, err := f.Orphans(t.Context())
	require.NoError(t, err)
	require.Less(t, calls()-before, 1000, "commands")
	left := f.redis.SCard(t.Context(), f.key("resqued:masters")).Val()
	require.Less(t, left, int64(junk), "it goes on with the rest the next time")

	reply, err := f.Beat(t.Context(), store.BeatRequest{Proc: "p1"})
	require.NoError(t, err)
	require.Len(t, reply.Left, 16)
	require.NotContains(t, f.redis.Info(t.Context(), "commandstats").Val(), "cmdstat_hkeys", "nobody asks for all of them")
}
