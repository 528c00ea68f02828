package view

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// LockedQueue is a queue whose jobs wait for locks.
type LockedQueue struct {
	Queue string `json:"queue"`
	// State is starved when all of its jobs are locked, and waiting otherwise.
	State string `json:"state"`
	// Locked of Size jobs were locked when last looked at.
	Locked int64 `json:"locked"`
	Size   int64 `json:"size"`
	// Lined is how many of these wait in a line for each lock, in their order; the others were put
	// back at the tail of the queue.
	Lined int64 `json:"lined"`
	// SinceS is for how many seconds that has been known; null = not known.
	SinceS *int64 `json:"since_s"`
	// Locks is how many locks are in the way, as far as they are known.
	Locks int64 `json:"locks"`

	// Since is when that was first seen; zero = not known.
	Since time.Time `json:"-"`
}

// QueueWaits is the state of a queue in which some jobs are locked, but not all.
const QueueWaits = "waiting"

// WaitStore is what the view of queues that wait for locks needs of the store.
type WaitStore interface {
	WaitList(ctx context.Context) ([]store.WaitInfo, error)
}

// LockedQueues returns the queues in which jobs are known to wait for locks, by name.
func LockedQueues(ctx context.Context, s WaitStore) ([]LockedQueue, error) {
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
			s := seconds(now.Sub(w.Since))
			v.SinceS = &s
		}
		views[i] = v
	}
	return views, nil
}

// Line is a line of jobs that wait for one lock, in the order in which they were pushed.
type Line struct {
	Queue string `json:"queue"`
	// Lock is the key of the lock, without the namespace; kept back like that of a lock.
	Lock string `json:"lock"`
	// State is waiting while the lock is held, and ready when it was released.
	State string `json:"state"`
	Jobs  int64  `json:"jobs"`
	// SinceS is for how many seconds the line has been there.
	SinceS int64 `json:"since_s"`

	// Since is when it began.
	Since time.Time `json:"-"`
}

// LineReady is the state of a line whose lock was released, so that its next job may be taken.
const LineReady = "ready"

// LineStore is what the view of lines needs of the store.
type LineStore interface {
	Lines(ctx context.Context, queue string, limit int) ([]store.LineInfo, error)
}

// Lines returns the lines of a queue, those that began first before the others, limit at most. cut
// reports whether there are more.
func Lines(ctx context.Context, s LineStore, queue string, limit int) (views []Line, cut bool, err error) {
	list, err := s.Lines(ctx, queue, limit+1)
	if err != nil {
		return nil, false, err
	}
	now := time.Now()
	for _, l := range list[:min(limit, len(list))] {
		v := Line{
			Queue: queue, Lock: Rules(ctx).Key(store.LocketLock, "", nil, l.Lock), State: QueueWaits, Jobs: l.Jobs,
			Since: l.Since, SinceS: seconds(now.Sub(l.Since)),
		}
		if l.Ready {
			v.State = LineReady
		}
		views = append(views, v)
	}
	return views, len(list) > limit, nil
}
