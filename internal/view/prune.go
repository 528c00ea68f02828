package view

import (
	"context"
	"slices"

	"github.com/resqued/resqued/internal/store"
)

// PrunableQueues returns the queues, among names or all, that are unused: not paused, nothing
// waits or runs, no worker names them except by patterns. The error is a NotFoundError for an
// unknown name.
func PrunableQueues(ctx context.Context, s *store.Store, names ...string) ([]string, error) {
	_, list, err := listQueues(ctx, s, names)
	if err != nil {
		return nil, err
	}
	workers, err := s.WorkerList(ctx)
	if err != nil {
		return nil, err
	}
	procs, err := s.ProcList(ctx)
	if err != nil {
		return nil, err
	}
	named, busy := map[string]bool{}, busyByQueue(workers, procs)
	for _, l := range queueLists(workers) {
		for _, queue := range l.patterns {
			named[queue] = true
		}
	}
	list = slices.DeleteFunc(slices.Clone(list), func(q store.QueueInfo) bool {
		return q.Err != nil || q.Size+q.Suspects > 0 || q.Paused || named[q.Name] || busy[q.Name] > 0
	})
	out := make([]string, len(list))
	for i, q := range list {
		out[i] = q.Name
	}
	return out, nil
}
