package workerproc

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
)

// TestWakersShare: all masters together wait no more than they may. A few wait as much as each
// likes, and every queue has waiters.
func TestWakersShare(t *testing.T) {
	t.Parallel()
	const all, one, named = 512, 16, 20
	var queues []string
	for i := range named {
		queues = append(queues, fmt.Sprintf("q%02d", i))
	}
	s := setup(t)
	spec, _, err := selector.Parse(queues, 1)
	require.NoError(t, err)
	for _, masters := range []int{1, 2, 4, 32, 33, 100, 500, 512, 513, 1000, 5000} {
		s.cfg.Queues, s.d.Waits, s.d.FleetWaits = spec, one, all
		s.d.OpenWaiter = func(int) (Waiter, error) { return &patient{}, nil }
		p := newPoller(s.shared, func() int64 { return 0 }, &sync.WaitGroup{})
		total, waits := 0, map[string]int{}
		for i := range masters {
			w := newWaker(t.Context(), p)
			w.luck, w.place = (float64(i)+0.5)/float64(masters), math.Mod(float64(i)*0.618, 1)
			w.share(masters)
			watched := w.watched(time.Now(), 0)
			require.Len(t, watched, w.limit)
			total += w.limit
			for _, queue := range watched {
				waits[queue]++
			}
		}
		require.LessOrEqual(t, total, max(all, one), "%d masters", masters)
		if masters <= all/one {
			require.Equal(t, masters*one, total)
		} else {
			require.Greater(t, total, all/2, "%d masters", masters)
		}
		for _, queue := range queues[:one] {
			require.GreaterOrEqual(t, waits[queue], min(masters, 8), "%d masters wait for %s", masters, queue)
		}
	}
}

// TestWakerFollowsTheFleet: connections are closed when masters come, and opened again when they
// go.
func TestWakerFollowsTheFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, polls := setup(t), &waitingQueues{}
		spec, _, err := selector.Parse([]string{"a", "b", "c", "d", "e", "f", "g", "h"}, 1)
		require.NoError(t, err)
		var mu sync.Mutex
		var opened []int
		var helpers sync.WaitGroup
		s.d.Store, s.cfg.Interval, s.cfg.Queues = polls, time.Second, spec
		s.d.Waits, s.d.FleetWaits = 8, 16
		s.d.OpenWaiter = func(waits int) (Waiter, error) {
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, waits)
			return &patient{}, nil
		}
		p := newPoller(s.shared, func() int64 { return 0 }, &helpers)
		ctx, cancel := context.WithCancel(t.Context())
		helpers.Go(func() { p.run(ctx) })
		p.set(pollQuiet)
		p.pollForAll(true)
		fleet := func(masters int) []int {
			polls.set(store.PollReply{Masters: masters}, nil)
			<-time.After(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			return append([]int(nil), opened...)
		}
		require.Equal(t, []int{8}, fleet(1))
		require.Equal(t, []int{8}, fleet(2))
		require.Equal(t, []int{8, 4}, fleet(4))
		require.Equal(t, []int{8, 4}, fleet(0), "it was not asked for")
		require.Equal(t, []int{8, 4}, fleet(3), "one master less changes nothing")
		require.Equal(t, []int{8, 4, 1}, fleet(16))
		require.Equal(t, []int{8, 4, 1, 8}, fleet(2))
		require.Equal(t, []int{8, 4, 1, 8}, fleet(1_000_000)[:4])
		before := len(fleet(1_000_000))
		require.Len(t, fleet(1_000_000), before, "it waits no more, or goes on to wait for one")
		cancel()
		helpers.Wait()
	})
}
