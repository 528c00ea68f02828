package store_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

func TestExchangeWithBlockingReads(t *testing.T) {
	t.Parallel()
	t.Run("a connection that the server has ended is not used again", func(t *testing.T) {
		t.Parallel()
		f := setup(t, redistest.Start(t, redistest.Options{}), func(o *store.Options) { o.BlockingReads = true })
		f.push("q", job("A", "[1]"))
		f.reserve(1, "q")
		require.NoError(t, f.redis.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
		f.reserve(1, "q") // an error would be that of a call whose fate is unknown
	})

	t.Run("a server that does not answer", func(t *testing.T) {
		t.Parallel()
		f := setup(t, redistest.Start(t, redistest.Options{}), func(o *store.Options) { o.BlockingReads = true })
		f.reserve(1, "q")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, f.redis.ClientPause(t.Context(), 3*time.Second).Err())
		blocked := make(chan bool)
		go func() {
			stacks := make([]byte, 1<<20)
			found := false
			for ctx.Err() == nil && !found {
				text := string(stacks[:runtime.Stack(stacks, true)])
				for stack := range strings.SplitSeq(text, "\n\n") {
					found = found || strings.Contains(stack, "blockingConn).Read") && strings.Contains(stack, "Store).Exchange")
				}
			}
			blocked <- found
		}()
		_, err := f.Exchange(ctx, store.ExchangeRequest{Proc: "p1", Wants: f.wants(1), Queues: locked("q")})
		require.True(t, <-blocked, "it waits in a read that blocks")
		require.True(t, rdb.Unreachable(err), "%v", err)
		require.False(t, rdb.Unexecuted(err), "%v", err)
	})
}
