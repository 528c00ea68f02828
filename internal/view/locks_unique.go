package view

import (
	"context"

	"github.com/resqued/resqued/internal/store"
)

// States of a unique queue.
const (
	UniqueOK        = "ok"
	UniqueBroken    = "broken"      // one of its keys has the wrong type
	UniqueOutOfStep = "out-of-step" // its keys do not match each other
)

// UniqueQueue is a unique queue.
type UniqueQueue struct {
	Queue string `json:"queue"`
	State string `json:"state"`
	// Size, Set and StartAt are the lengths of its list, set and times; null if it is broken.
	Size    *int64 `json:"size"`
	Set     *int64 `json:"set"`
	StartAt *int64 `json:"start_at"`
	// Configured reports whether the configuration, not another program, makes it unique.
	Configured bool `json:"configured"`

	// Problem is why the state is UniqueBroken.
	Problem string `json:"-"`
}

// UniqueStore is what the view of unique queues needs of the store.
type UniqueStore interface {
	QueueList(ctx context.Context) ([]store.QueueInfo, error)
	UniqueList(ctx context.Context, queues []string) ([]store.UniqueInfo, error)
}

// UniqueQueues returns the named queues, or all unique ones. configured reports whether the
// configuration makes a queue unique. The error is a NotFoundError if a name matches no queue.
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
