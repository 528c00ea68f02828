package web

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zaptest/observer"
)

// However many probes come, Redis is asked by one at a time and once a second. The log says when it
// goes away and comes back, not each time.
func TestReadiness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, said := observer.New(zap.InfoLevel)
		a := newReadiness()
		var away error
		asked := 0
		ping := func(ctx context.Context) error {
			asked++
			if away == nil {
				return nil
			}
			<-ctx.Done() // it hangs
			return away
		}
		ask := func(ctx context.Context) error { return a.ask(ctx, ping, slog.New(zapslog.NewHandler(core))) }
		many := func() {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { require.ErrorIs(t, ask(t.Context()), away) })
			}
			all.Wait()
		}
		many()
		require.Equal(t, 1, asked)
		away = errors.New("dial redis.internal:6379: refused")
		require.NoError(t, ask(t.Context()), "said again for a second")
		<-time.After(readyKept)
		begun := time.Now()
		many()
		require.Equal(t, 2, asked, "those that wait have its answer")
		require.Equal(t, readyPatience, time.Since(begun))
		<-time.After(readyKept)
		// The probe that asks goes before Redis has answered; those that wait have the answer.
		probe, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() { first <- ask(probe) }()
		synctest.Wait()
		go many()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, ask(probe), context.Canceled, "one that waits goes as well")
		require.ErrorIs(t, <-first, away)
		synctest.Wait()
		require.Equal(t, 3, asked)
		require.Equal(t, 1, said.Len(), "%v", said.All())
		require.Equal(t, away.Error(), said.All()[0].ContextMap()["error"])
		away = nil
		<-time.After(readyKept)
		many()
		require.Equal(t, 4, asked)
		require.Equal(t, 2, said.Len())
		require.Equal(t, "ready: Redis answers again", said.All()[1].Message)
	})
}
