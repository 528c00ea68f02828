package view

import (
	"context"
	"slices"

	"github.com/resqued/resqued/internal/store"
)

// PrunableQueues returns the names of the queues, of those named or of all, in which nothing waits
// or runs, that are not paused, and that no worker names. One that has them by a pattern does not
// name them. The error is a NotFoundError if one of the names stands for no queue.
func PrunableQueues(ctx context.Context, s QueueStore, names ...string) ([]string, error) {
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
