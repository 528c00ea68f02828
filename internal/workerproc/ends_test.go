package workerproc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

// choking is a Redis whose script fails on the end of one job.
type choking struct {
	workerproc.Store
	payload string
	cured   atomic.Bool
	chokes  atomic.Int64
}

type scriptError string

func (e scriptError) Error() string { return string(e) }
func (e scriptError) RedisError()   {}

func (c *choking) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	for _, end := range req.Completions {
		if string(end.Job.Payload) == c.payload && !c.cured.Load() {
			c.chokes.Add(1)
			return store.ExchangeReply{}, scriptError("ERR user_script:1: it does not like this")
		}
	}
	return c.Store.Exchange(ctx, req)
}

// An end on which the script fails does not delay other jobs.
func TestOneEndHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	c := &choking{payload: payload(3)}
	f := start(t, handlers{"A": succeed}, options{
		cfg: workerproc.Config{Threads: 5},
		wrap: func(s workerproc.Store) workerproc.Store {
			c.Store = s
			return c
		},
	})
	for i := range 40 {
		f.push(payload(i))
	}
	eventually(t, "the others are processed", func() bool { return f.processed() == 39 })
	require.Positive(t, c.chokes.Load())
	c.cured.Store(true)
	eventually(t, "and that one, too", func() bool { return f.processed() == 40 })
	require.EqualValues(t, 40, f.started.Load(), "none runs twice")
	f.drain()
}

// A drain ends although Redis accepts nothing, and reports what is left.
func TestDrainThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	away := &refusing{}
	h, running, open := gate()
	f := start(t, handlers{"A": h}, options{
		cfg: workerproc.Config{TermTimeout: 300 * time.Millisecond},
		wrap: func(s workerproc.Store) workerproc.Store {
			away.Store = s
			return away
		},
	})
	f.push(payload(1))
	<-running
	away.away.Store(true)
	f.down <- proc.Message{Type: proc.SetState, State: "draining"}
	close(open)
	require.Equal(t, proc.Untidy, f.expect(proc.Bye).Reason)
	require.NoError(t, <-f.result)
	held, _, err := f.store.Fence(t.Context(), "h:boot:1-1:0.1", true)
	require.NoError(t, err)
	require.Len(t, held, 1, "its record is for whoever recovers it")
}
