package retry

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// The pauses between two attempts to reach Redis.
const (
	firstPause = 20 * time.Millisecond
	longPause  = 2 * time.Second
)

const maxCounts = 100

// Store has the counts; *store.Store implements it.
type Store interface {
	// RetryCounts returns the counts under keys without the namespace; -1 for none.
	RetryCounts(ctx context.Context, keys []string) ([]int, error)
}

// counter reads counts for many threads. One read at a time serves all threads that asked during
// the one before, so that a process does not read for each job.
type counter struct {
	store   Store
	ctx     context.Context //nolint:containedctx // its life
	stop    context.CancelFunc
	reading sync.WaitGroup

	mu      sync.Mutex
	asked   []ask
	running bool
}

type ask struct {
	key    string
	answer chan int
}

func newCounter(s Store) *counter {
	c := &counter{store: s}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// close stops the goroutine. count must not be called any more.
func (c *counter) close() {
	c.stop()
	c.reading.Wait()
}

func (c *counter) count(ctx context.Context, key string) (int, error) {
	answer := make(chan int, 1)
	c.mu.Lock()
	c.asked = append(c.asked, ask{key, answer})
	if !c.running {
		c.running = true
		c.reading.Go(c.read)
	}
	c.mu.Unlock()
	select {
	case n := <-answer:
		return n, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (c *counter) read() {
	for {
		c.mu.Lock()
		asked := c.asked[:min(len(c.asked), maxCounts)]
		c.asked = c.asked[len(asked):]
		c.running = len(asked) > 0
		c.mu.Unlock()
		if len(asked) == 0 {
			return
		}
		keys := make([]string, len(asked))
		for i, a := range asked {
			keys[i] = a.key
		}
		for i, n := range c.readUntilKnown(keys) {
			asked[i].answer <- n
		}
	}
}

// readUntilKnown reads until Redis answers. It returns nil if the counter is closed.
func (c *counter) readUntilKnown(keys []string) []int {
	pause := firstPause
	for c.ctx.Err() == nil {
		if counts, err := c.store.RetryCounts(c.ctx, keys); err == nil {
			return counts
		}
		select {
		case <-c.ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, longPause)
	}
	return nil
}
