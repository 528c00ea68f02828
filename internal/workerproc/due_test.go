package workerproc_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/workerproc"
)

// callers says that delayed jobs are due, and records the names by which a process moves them.
type callers struct {
	workerproc.Store
	names chan string
}

func (c *callers) Poll(ctx context.Context, r store.PollRequest) (store.PollReply, error) {
	reply, err := c.Store.Poll(ctx, r)
	reply.Due = true
	return reply, err
}

func (c *callers) MoveDue(ctx context.Context, caller string, unique func(queue string) bool) (store.Due, error) {
	select {
	case c.names <- caller:
	default:
	}
	return c.Store.MoveDue(ctx, caller, unique)
}

// TestDueBesideAForwarder: a process that moves a few delayed jobs at each look takes no turn. A
// turn would keep its master's forwarder, which continues at once, from the rest.
func TestDueBesideAForwarder(t *testing.T) {
	t.Parallel()
	for untilEmpty, name := range map[bool]string{false: store.Helper, true: ""} {
		c := &callers{names: make(chan string, 1)}
		start(t, handlers{}, options{cfg: workerproc.Config{UntilEmpty: untilEmpty}, wrap: func(s workerproc.Store) workerproc.Store {
			c.Store = s
			return c
		}})
		select {
		case got := <-c.names:
			require.Equal(t, name, got)
		case <-time.After(patience):
			t.Fatal("nothing was moved")
		}
	}
}
