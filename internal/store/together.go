package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// together combines jobs that are pushed at the same time into one call. A job whose caller must wait for the
// answer is sent at once if no call is under way; otherwise a lane takes it with all others that wait. There
// are as many lanes as connections, so no job waits that could have a connection of its own.
//
// A lane is a goroutine. It starts when a job waits and no lane is about to leave, and ends when nothing waits.
// PushTogether starts it; close waits for it.
type together struct {
	mu      sync.Mutex
	waiting []*waitingPush // in their order
	lanes   int            // calls under way or about to leave
	most    int            // lanes
	// leaving: a lane is about to take the waiting jobs.
	leaving bool
	// several: the last lane took more than one job. The callers of those come back together, so the
	// first one waits for the others.
	several bool
	closed  bool
	running sync.WaitGroup
	ctx     context.Context //nolint:containedctx // that of calls whose callers may leave before they end
	cancel  context.CancelFunc
}

type waitingPush struct {
	queue   string
	payload []byte
	answer  chan Pushed // buffered: the caller may be gone
}

// errAlone makes a caller push its job by itself.
var errAlone = errors.New("alone")

func (t *together) open(pool int) {
	if t.most = pool; pool <= 0 {
		t.most = rdb.DefaultPoolSize
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
}

// PushTogether appends a payload to a queue as Push does, in one transaction with other concurrent pushes, and
// returns the queue's length up to and including it. Each job has its own answer. If ctx ends before the job is
// sent, the error is Unexecuted; after any other error, the outcome is as with Push.
func (s *Store) PushTogether(ctx context.Context, queue string, payload []byte) (int64, error) {
	t := &s.together
	w, err := t.enter(ctx, s, queue, payload)
	switch {
	case err != nil:
		return 0, fmt.Errorf("push to %q: %w: %w", queue, rdb.ErrNotSent, err)
	case w == nil:
		defer t.leave(s)
		return s.Push(ctx, queue, payload)
	}
	select {
	case p := <-w.answer:
		return s.answered(ctx, w, p)
	case <-ctx.Done():
	}
	if t.withdraw(w) {
		return 0, fmt.Errorf("push to %q: %w: %w", queue, rdb.ErrNotSent, ctx.Err())
	}
	select {
	case p := <-w.answer:
		return s.answered(ctx, w, p)
	default:
		return 0, fmt.Errorf("push to %q: %w: it is not known whether the job was pushed", queue, ctx.Err())
	}
}

func (s *Store) answered(ctx context.Context, w *waitingPush, p Pushed) (int64, error) {
	if p.Err == errAlone { //nolint:errorlint // it is told as it is
		return s.Push(ctx, w.queue, w.payload)
	}
	return p.Length, p.Err
}

// enter queues a job; if the job may be sent at once, it reserves a lane and returns nil.
func (t *together) enter(ctx context.Context, s *Store, queue string, payload []byte) (*waitingPush, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, redis.ErrClosed
	case t.lanes == 0 && !t.several && ctx.Done() == nil: // else the caller may leave before the answer
		t.lanes = 1
		return nil, nil //nolint:nilnil // as documented
	}
	// A copy: the caller may leave and reuse its bytes during the call.
	w := &waitingPush{queue: queue, payload: slices.Clone(payload), answer: make(chan Pushed, 1)}
	t.waiting = append(t.waiting, w)
	t.begin(s)
	return w, nil
}

// leave returns the lane of a job that was sent by itself.
func (t *together) leave(s *Store) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes--
	t.begin(s)
}

// begin starts a lane for waiting jobs, if there is room and no lane is about to leave. t.mu must be held.
func (t *together) begin(s *Store) {
	if len(t.waiting) == 0 || t.leaving || t.lanes >= t.most {
		return
	}
	t.leaving = true
	t.lanes++
	t.running.Go(func() { t.lane(s) })
}

// withdraw removes a waiting job, and reports whether it was still waiting.
func (t *together) withdraw(w *waitingPush) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.waiting, w)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	return at >= 0
}

// lane pushes waiting jobs until none is left or another lane is about to leave.
func (t *together) lane(s *Store) {
	for {
		// Other goroutines may have jobs, above all those that got their answers together.
		runtime.Gosched()
		some := t.take(s)
		if len(some) == 0 {
			return
		}
		answers := s.pushWaiting(t.ctx, some)
		more := t.again()
		for i, w := range some {
			w.answer <- answers[i]
		}
		if !more {
			return
		}
	}
}

// take returns the jobs to send now; if there are none, it returns the lane.
func (t *together) take(s *Store) []*waitingPush {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, size := 0, 0
	for n < len(t.waiting) && n < batchJobs && (n == 0 || size+len(t.waiting[n].payload) <= batchBytes) {
		size += len(t.waiting[n].payload)
		n++
	}
	t.leaving, t.several = false, n > 1
	if n == 0 {
		t.lanes--
		return nil
	}
	some := slices.Clone(t.waiting[:n])
	t.waiting = slices.Delete(t.waiting, 0, n)
	t.begin(s)
	return some
}

// again reports whether a lane continues after its call; else it has returned the lane.
func (t *together) again() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaving {
		t.lanes--
		return false
	}
	t.leaving = true
	return true
}

// close answers all waiting jobs with an error, and waits for the lanes; end ends their calls.
func (t *together) close(end func() error) error {
	t.mu.Lock()
	t.closed = true
	left := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	for _, w := range left {
		w.answer <- Pushed{Err: fmt.Errorf("push to %q: %w: %w", w.queue, rdb.ErrNotSent, redis.ErrClosed)}
	}
	t.cancel()
	err := end()
	t.running.Wait()
	return err
}

// pushWaiting pushes jobs in one transaction, and answers for each. If the server refused the transaction,
// perhaps because of one job, each is to be pushed by itself.
func (s *Store) pushWaiting(ctx context.Context, jobs []*waitingPush) []Pushed {
	open := map[string]*pushGroup{}
	var groups []*pushGroup
	for i, w := range jobs {
		g := open[w.queue]
		if g == nil {
			g = &pushGroup{queue: w.queue}
			open[w.queue] = g
			groups = append(groups, g)
		}
		g.add(w.payload, i)
	}
	aborted := s.pushTransaction(ctx, groups)
	answers := make([]Pushed, len(jobs))
	for _, g := range groups {
		g.answer(answers)
		for _, at := range g.at {
			if aborted && len(groups) > 1 {
				answers[at].Err = errAlone
			}
		}
	}
	return answers
}
