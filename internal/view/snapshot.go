package view

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/store"
)

// Snapshot is all that is seen of the queues and of those who work them, each list in Redis read
// once.
type Snapshot struct {
	Queues  []*Queue
	Workers []*Worker
	Jobs    []*Job
	// Processed and Failed are Resque's counters.
	Processed, Failed int64
	// At is when the counters were read, Took how long all of it has taken.
	At   time.Time
	Took time.Duration
}

// SnapshotStore is what a snapshot needs of the store.
type SnapshotStore interface {
	QueueStore
	Stats(ctx context.Context) (processed, failed int64, err error)
	Heads(ctx context.Context, queues []string) ([][]byte, error)
}

// Snap takes a snapshot.
func Snap(ctx context.Context, s SnapshotStore) (*Snapshot, error) {
	begun := time.Now()
	read, err := readOnce(ctx, s)
	if err != nil {
		return nil, err
	}
	v := &Snapshot{}
	if v.Queues, err = Queues(ctx, read); err != nil {
		return nil, err
	}
	if v.Workers, err = Workers(ctx, read); err != nil {
		return nil, err
	}
	if v.Jobs, err = Jobs(ctx, read); err != nil {
		return nil, err
	}
	if v.Processed, v.Failed, err = s.Stats(ctx); err != nil {
		return nil, err
	}
	v.At, v.Took = time.Now(), time.Since(begun)
	return v, nil
}

// onceRead is what the views of queues, workers and jobs read, as it was at one time.
type onceRead struct {
	queues  []store.QueueInfo
	workers []store.WorkerInfo
	procs   []store.ProcInfo
	masters map[string]map[string]string
	heads   map[string][]byte
}

func readOnce(ctx context.Context, s SnapshotStore) (*onceRead, error) {
	r := &onceRead{heads: map[string][]byte{}}
	var err error
	if r.queues, err = s.QueueList(ctx); err != nil {
		return nil, err
	}
	if r.workers, err = s.WorkerList(ctx); err != nil {
		return nil, err
	}
	if r.procs, err = s.ProcList(ctx); err != nil {
		return nil, err
	}
	if r.masters, err = s.MasterList(ctx); err != nil {
		return nil, err
	}
	var names []string
	for i, q := range r.queues {
		if i < maxOldest && q.Size > 0 {
			names = append(names, q.Name)
		}
	}
	heads, err := s.Heads(ctx, names)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		r.heads[name] = heads[i]
	}
	return r, nil
}

func (r *onceRead) QueueList(context.Context) ([]store.QueueInfo, error)   { return r.queues, nil }
func (r *onceRead) WorkerList(context.Context) ([]store.WorkerInfo, error) { return r.workers, nil }
func (r *onceRead) ProcList(context.Context) ([]store.ProcInfo, error)     { return r.procs, nil }
func (r *onceRead) MasterList(context.Context) (map[string]map[string]string, error) {
	return r.masters, nil
}

// Payloads returns the head of a queue, whatever more is asked for.
func (r *onceRead) Payloads(_ context.Context, queue string, _, _ int64) ([][]byte, error) {
	if head := r.heads[queue]; head != nil {
		return [][]byte{head}, nil
	}
	return nil, nil
}

// LocksHeld is how many locks the running jobs hold.
func (v *Snapshot) LocksHeld() int {
	n := 0
	for _, j := range v.Jobs {
		if j.Record.LockKey != "" {
			n++
		}
	}
	return n
}
