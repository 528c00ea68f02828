package resquedtest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// dueStore is the Redis of a worker process that exits when no job can run now. The process
// would otherwise wait for delayed jobs and for locks of others, so dueStore hides these.
type dueStore struct {
	*store.Store

	mu sync.Mutex
	// inHand is how many jobs the process has. changed is closed when that changes.
	inHand  int
	changed chan struct{}
	// barren are the queues in which the last exchange found no job that can run.
	barren []string
}

func newDueStore(s *store.Store) *dueStore { return &dueStore{Store: s, changed: make(chan struct{})} }

// Exchange records which jobs the process has, and in which queues it found none.
func (s *dueStore) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	reply, err := s.Store.Exchange(ctx, req)
	if err != nil {
		return reply, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inHand += len(reply.Jobs) - len(req.Completions) + len(reply.Stuck)
	close(s.changed)
	s.changed = make(chan struct{})
	s.barren = nil
	if len(req.Wants) > 0 && len(reply.Jobs) == 0 && !reply.More && len(reply.Unnamed) == 0 {
		for _, q := range req.Queues {
			s.barren = append(s.barren, q.Name)
		}
	}
	return reply, nil
}

// Limit records that the process no longer has the jobs that wait for limits.
func (s *dueStore) Limit(ctx context.Context, proc string, jobs []store.Gated, again bool) ([]store.Admission, time.Duration, error) {
	told, next, err := s.Store.Limit(ctx, proc, jobs, again)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range told {
		if a.Waits {
			s.inHand--
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return told, next, err
}

// Poll looks for queues in which a job may run. It waits while a job runs.
func (s *dueStore) Poll(ctx context.Context, r store.PollRequest) (store.PollReply, error) {
	if err := s.idle(ctx); err != nil {
		return store.PollReply{}, err
	}
	reply, err := s.Store.Poll(ctx, r)
	if err != nil {
		return reply, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(reply.Reasons, func(queue string, why store.Reason) bool {
		return why != store.Free || slices.Contains(s.barren, queue)
	})
	reply.Suspects = nil
	return reply, nil
}

func (s *dueStore) idle(ctx context.Context) error {
	for {
		s.mu.Lock()
		busy, changed := s.inHand > 0, s.changed
		s.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// MoveDue moves delayed jobs. A queue that gets one is worth another try.
func (s *dueStore) MoveDue(ctx context.Context, caller string, unique func(queue string) bool) (store.Due, error) {
	due, err := s.Store.MoveDue(ctx, caller, unique)
	if due.Moved > 0 {
		s.mu.Lock()
		s.barren = nil
		s.mu.Unlock()
	}
	return due, err
}

// DelayedQueues returns none: the process does not wait for delayed jobs.
func (s *dueStore) DelayedQueues(context.Context) ([]string, error) { return nil, nil }
