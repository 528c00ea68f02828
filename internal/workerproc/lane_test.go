package workerproc_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

// held is a Redis that delays exchanges once it is armed: each announces itself, is executed on
// a first signal, and is answered on a second.
type held struct {
	workerproc.Store
	armed atomic.Bool
	calls chan *heldCall
}

type heldCall struct {
	req    store.ExchangeRequest
	run    chan struct{}
	ran    chan struct{}
	answer chan struct{}
}

func (h *held) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	if !h.armed.Load() {
		return h.Store.Exchange(ctx, req)
	}
	c := &heldCall{req: req, run: make(chan struct{}), ran: make(chan struct{}), answer: make(chan struct{})}
	h.calls <- c
	<-c.run
	reply, err := h.Store.Exchange(ctx, req)
	close(c.ran)
	<-c.answer
	return reply, err
}

func (c *heldCall) finish() {
	close(c.run)
	<-c.ran
	close(c.answer)
}

// tenRunning is a process of ten threads that all have a job; each ends when its number is
// sent. It polls at its start and then no more.
func tenRunning(t *testing.T) (f *fixture, h *held, end func(...int), began chan string) {
	t.Helper()
	h = &held{calls: make(chan *heldCall, 8)}
	ends, began := map[string]chan struct{}{}, make(chan string, 100)
	for i := range 40 {
		ends[payload(i)] = make(chan struct{})
	}
	end = func(numbers ...int) {
		for _, i := range numbers {
			close(ends[payload(i)])
		}
	}
	f = start(t, handlers{"A": func(_ context.Context, j *resqued.Job) error {
		<-time.After(time.Millisecond) // none ends at once
		began <- string(j.Payload)
		<-ends[string(j.Payload)]
		return nil
	}}, options{
		cfg: workerproc.Config{Threads: 10, Interval: time.Hour}, state: "paused",
		wrap: func(s workerproc.Store) workerproc.Store {
			h.Store = s
			return h
		},
	})
	for i := range 10 {
		f.push(payload(i))
	}
	f.down <- proc.Message{Type: proc.SetState, State: "running"}
	for range 10 {
		next(t, began)
	}
	h.armed.Store(true)
	return f, h, end, began
}

func TestASecondExchangeLeavesWhenMuchHasEnded(t *testing.T) {
	t.Parallel()
	f, h, end, began := tenRunning(t)
	end(0)
	first := next(t, h.calls)
	require.Len(t, first.req.Completions, 1)
	end(1, 2) // more than 15 percent
	second := next(t, h.calls)
	require.Len(t, second.req.Completions, 2)
	require.NotEqual(t, first.req.Lane, second.req.Lane)
	tokens := map[string]bool{}
	for _, w := range append(first.req.Wants, second.req.Wants...) {
		tokens[w.Token+" "+w.Worker] = true
	}
	require.Len(t, tokens, 3, "each idle thread is asked for once")

	// The second is answered first, and a free lane takes what has ended since.
	f.push(payload(10), payload(11))
	second.finish()
	next(t, began)
	next(t, began)
	end(3, 4)
	third := next(t, h.calls)
	require.Equal(t, second.req.Lane, third.req.Lane)
	h.armed.Store(false)
	first.finish()
	third.finish()
	end(5, 6, 7, 8, 9, 10, 11)
	eventually(t, "all processed", func() bool { return f.processed() == 12 })
	f.drain()
}

// An empty answer does not make the process idle while another call is under way: jobs that
// this has unlocked, or that came meanwhile, would wait for the next poll.
func TestAThreadAsksAgainAfterOverlappingExchanges(t *testing.T) {
	t.Parallel()
	f, h, end, began := tenRunning(t)
	end(0)
	first := next(t, h.calls)
	end(1, 2)
	second := next(t, h.calls)
	close(second.run)
	<-second.ran // it has found nothing
	f.push(payload(10), payload(11))
	first.finish()
	require.Equal(t, payload(10), next(t, began))
	h.armed.Store(false)
	close(second.answer)
	require.Equal(t, payload(11), next(t, began))
	end(3, 4, 5, 6, 7, 8, 9, 10, 11)
	eventually(t, "all processed", func() bool { return f.processed() == 12 })
	f.drain()
}

// unsure loses every fourth request and every fourth reply.
type unsure struct {
	workerproc.Store
	calls atomic.Int64
}

func (u *unsure) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	n := u.calls.Add(1)
	if n%4 == 1 {
		return store.ExchangeReply{}, io.ErrUnexpectedEOF
	}
	reply, err := u.Store.Exchange(ctx, req)
	if n%4 == 3 {
		return store.ExchangeReply{}, io.ErrUnexpectedEOF
	}
	return reply, err
}

// Two exchanges together take no more jobs than the quota, and none twice, also if their
// answers are lost.
func TestOverlappingExchangesKeepTheQuota(t *testing.T) {
	t.Parallel()
	f := start(t, handlers{"A": succeed}, options{
		cfg: workerproc.Config{Threads: 10, JobsPerFork: 133}, state: "paused",
		wrap: func(s workerproc.Store) workerproc.Store { return &unsure{Store: s} },
	})
	for i := range 200 {
		f.push(payload(i))
	}
	f.down <- proc.Message{Type: proc.SetState, State: "running"}
	f.ends()
	require.EqualValues(t, 133, f.started.Load())
	require.Equal(t, 133, f.processed())
	require.Equal(t, 67, f.waiting())
}
