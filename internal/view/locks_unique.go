package view

import (
	"context"

	"github.com/resqued/resqued/internal/store"
)

// The states of a unique queue.
const (
	UniqueOK        = "ok"
	UniqueBroken    = "broken"      // a key of it is of the wrong type
	UniqueOutOfStep = "out-of-step" // its keys do not match each other
)

// UniqueQueue is a unique queue.
type UniqueQueue struct {
	Queue string `json:"queue"`
	State string `json:"state"`
	// Size, Set and StartAt are the lengths of the queue, its set of payloads and
	// its list of times; null if the state is broken.
	Size    *int64 `json:"size"`
	Set     *int64 `json:"set"`
	StartAt *int64 `json:"start_at"`
	// Configured reports whether the configuration says that the queue is unique.
	// Otherwise another program keeps it so.
	Configured bool `json:"configured"`

	// Problem says why the state is UniqueBroken.
	Problem string `json:"-"`
}

// UniqueStore is what the view of unique queues needs of the store.
type UniqueStore interface {
	QueueList(ctx context.Context) ([]store.QueueInfo, error)
	UniqueList(ctx context.Context, queues []string) ([]store.UniqueInfo, error)
}

// UniqueQueues returns the named queues, or those that are unique: configured reports
// whether the configuration says so of a queue. The error is a NotFoundError if a name stands
// for no queue.
func UniqueQueues(ctx context.Context, s UniqueStore, configured func(queue string) bool, names ...string) ([]UniqueQueue, error) {
	_, list, err := listQueues(ctx, s, names)
	if err != nil {
		return nil, err
	}
	queues := make([]string, len(list))
	for i, q := range list {
		queues[i] = q.Name
	}
	infos, err := s.UniqueList(ctx, queues)
	if err != nil {
		return nil, err
	}
	var views []UniqueQueue
	for _, u := range infos {
		v := UniqueQueue{Queue: u.Queue, State: UniqueOK, Size: &u.Size, Set: &u.Members, StartAt: &u.Starts, Configured: configured(u.Queue)}
		if !v.Configured && len(names) == 0 && !u.Kept {
			continue
		}
		switch {
		case u.Err != nil:
			v.State, v.Size, v.Set, v.StartAt, v.Problem = UniqueBroken, nil, nil, nil, u.Err.Error()
		case !u.InStep():
			v.State = UniqueOutOfStep
		}
		views = append(views, v)
	}
	return views, nil
}
