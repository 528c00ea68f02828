package view

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
)

// LockedQueue is a queue whose jobs wait for locks.
type LockedQueue struct {
	Queue string `json:"queue"`
	// State is starved if all of its jobs are locked, else waiting.
	State string `json:"state"`
	// Locked of Size jobs were locked at the last look.
	Locked int64 `json:"locked"`
	Size   int64 `json:"size"`
	// Lined is how many of these wait in lines; the others were put back at the queue's tail.
	Lined int64 `json:"lined"`
	// SinceS is for how many seconds this has been so; null = unknown.
	SinceS *int64 `json:"since_s"`
	// Locks is how many locks they are known to wait for.
	Locks int64 `json:"locks"`

	// Since is when this was first seen; zero = unknown.
	Since time.Time `json:"-"`
}

// QueueWaits is the state of a queue in which some jobs, but not all, are locked.
const QueueWaits = "waiting"

// LockedQueues returns the queues in which jobs wait for locks, by name.
func LockedQueues(ctx context.Context, s *store.Store) ([]LockedQueue, error) {
	list, err := s.WaitList(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	views := make([]LockedQueue, len(list))
	for i, w := range list {
		v := LockedQueue{Queue: w.Queue, State: QueueWaits, Locked: w.Locked, Size: w.Size, Lined: w.Lined, Locks: w.Locks, Since: w.Since}
		if w.Locked >= w.Size {
			v.State = QueueStarved
		}
		if !w.Since.IsZero() {
			v.SinceS = new(seconds(now.Sub(w.Since)))
		}
		views[i] = v
	}
	return views, nil
}

// Line is a lock's waiting list of jobs of a queue, in the order of their push.
type Line struct {
	Queue string `json:"queue"`
	// Lock is the lock's key without the namespace, as it may be shown.
	Lock string `json:"lock"`
	// State is waiting while the lock is held, ready when it was released.
	State  string `json:"state"`
	Jobs   int64  `json:"jobs"`
	SinceS int64  `json:"since_s"`

	Since time.Time `json:"-"`
}

// LineReady is the state of a line whose lock was released: its next job may be taken.
const LineReady = "ready"

// Lines returns at most limit lines of a queue, the oldest first, and whether there are more.
func Lines(ctx context.Context, s *store.Store, queue string, limit int) (views []Line, cut bool, err error) {
	list, err := s.Lines(ctx, queue, limit+1)
	if err != nil {
		return nil, false, err
	}
	now := time.Now()
	for _, l := range list[:min(limit, len(list))] {
		v := Line{
			Queue: queue, Lock: redact.From(ctx).Key(store.LocketLock, "", nil, l.Lock), State: QueueWaits, Jobs: l.Jobs,
			Since: l.Since, SinceS: seconds(now.Sub(l.Since)),
		}
		if l.Ready {
			v.State = LineReady
		}
		views = append(views, v)
	}
	return views, len(list) > limit, nil
}
