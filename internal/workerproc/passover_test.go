package workerproc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

// gazette records how many queues each exchange names, and how many of them it reports as
// empty. It allows no poll before it is open.
type gazette struct {
	workerproc.Store
	open chan struct{}

	mu     sync.Mutex
	looks  int
	queues []int
	empty  []int
}

func (g *gazette) Poll(ctx context.Context, r store.PollRequest) (store.PollReply, error) {
	<-g.open
	g.mu.Lock()
	g.looks++
	g.mu.Unlock()
	return g.Store.Poll(ctx, r)
}

func (g *gazette) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	g.mu.Lock()
	if len(req.Wants) > 0 {
		g.queues, g.empty = append(g.queues, len(req.Queues)), append(g.empty, req.Empty)
	}
	g.mu.Unlock()
	return g.Store.Exchange(ctx, req)
}

// Of many queues that held jobs, those that are now empty are left out once they have been
// asked for too often, and not only at the next interval.
func TestManyQueuesThatBecomeEmpty(t *testing.T) {
	t.Parallel()
	const n = 100
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("q%02d", i)
	}
	g := &gazette{open: make(chan struct{})}
	f := start(t, handlers{"A": succeed}, options{
		queues: names, cfg: workerproc.Config{Interval: time.Hour},
		wrap: func(s workerproc.Store) workerproc.Store {
			g.Store = s
			return g
		},
	})
	for i, name := range names {
		payloads := [][]byte{[]byte(payload(i))}
		for j := range 100 {
			if i == n-1 {
				payloads = append(payloads, []byte(payload(n+j)))
			}
		}
		_, err := f.store.Push(t.Context(), name, payloads...)
		require.NoError(t, err)
	}
	close(g.open)
	eventually(t, "all are done", func() bool { return f.processed() == n+100 })
	f.drain()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Equal(t, n, g.queues[0])
	require.LessOrEqual(t, g.queues[len(g.queues)-1], 64, "so many cost less than a look: %v", g.queues)
	require.Less(t, g.looks, 10)
}

// Empty queues are asked for together, and still come first.
func TestEmptyQueuesInFront(t *testing.T) {
	t.Parallel()
	g := &gazette{open: make(chan struct{})}
	close(g.open)
	var f *fixture
	var order []string
	f = start(t, handlers{"A": func(ctx context.Context, j *resqued.Job) error {
		order = append(order, string(j.Payload))
		if len(order) == 2 {
			_, err := f.store.Push(ctx, "b", []byte(payload(10)))
			return err
		}
		return nil
	}}, options{
		queues: []string{"a", "b", "c"}, cfg: workerproc.Config{Threads: 1, Interval: time.Hour}, state: "paused",
		wrap: func(s workerproc.Store) workerproc.Store {
			g.Store = s
			return g
		},
	})
	for i := range 4 {
		_, err := f.store.Push(t.Context(), "c", []byte(payload(i)))
		require.NoError(t, err)
	}
	f.down <- proc.Message{Type: proc.SetState, State: "running"}
	eventually(t, "all are done", func() bool { return f.processed() == 5 })
	f.drain()
	require.Equal(t, []string{payload(0), payload(1), payload(10), payload(2), payload(3)}, order)
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Contains(t, g.empty, 2)
	require.Contains(t, g.empty, 1)
}
