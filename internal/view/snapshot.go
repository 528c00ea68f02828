package view

import (
	"context"
	"slices"
	"strconv"
	"strings"
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

	read *onceRead
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
	v := &Snapshot{read: read}
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
	r.workers = fewer(r.workers, r.procs)
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

// fewer has one thread of resqued stand for all with the same queues whose processes are known:
// there may be a hundred thousand.
func fewer(workers []store.WorkerInfo, procs []store.ProcInfo) []store.WorkerInfo {
	type process struct{ host, pid string }
	known := map[process]bool{}
	for _, p := range procs {
		known[process{p.Fields["host"], p.Fields["pid"]}] = true
	}
	var out []store.WorkerInfo
	first := map[string]int{} // by queues
	for _, w := range workers {
		if !w.Name.Ours || !known[process{w.Name.Host, strconv.Itoa(w.Name.PID)}] {
			out = append(out, w)
			continue
		}
		queues := strings.Join(w.Name.Queues, "\x00")
		i, ok := first[queues]
		if !ok {
			first[queues] = len(out)
			out = append(out, w)
			continue
		}
		out[i].More++
	}
	return slices.Clip(out)
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

// Over is a store with what the snapshot has read of it already, so that what else is made of the
// same lists costs Redis nothing.
type Over struct {
	*store.Store
	read *onceRead
}

// Over returns the store as it was when the snapshot was taken; a snapshot that is nil has read
// nothing.
func (v *Snapshot) Over(s *store.Store) *Over {
	if v == nil {
		return &Over{Store: s}
	}
	return &Over{s, v.read}
}

// Fresh is like Over, but has the queues as they are.
func (v *Snapshot) Fresh(s *store.Store) QueueStore { return fresh{v.Over(s)} }

type fresh struct{ *Over }

func (f fresh) QueueList(ctx context.Context) ([]store.QueueInfo, error) {
	return f.Store.QueueList(ctx)
}

func (f fresh) Payloads(ctx context.Context, queue string, offset, limit int64) ([][]byte, error) {
	return f.Store.Payloads(ctx, queue, offset, limit)
}

// QueueList is that of the store.
func (o *Over) QueueList(ctx context.Context) ([]store.QueueInfo, error) {
	if o.read == nil {
		return o.Store.QueueList(ctx)
	}
	return o.read.QueueList(ctx)
}

// WorkerList is that of the store.
func (o *Over) WorkerList(ctx context.Context) ([]store.WorkerInfo, error) {
	if o.read == nil {
		return o.Store.WorkerList(ctx)
	}
	return o.read.WorkerList(ctx)
}

// ProcList is that of the store.
func (o *Over) ProcList(ctx context.Context) ([]store.ProcInfo, error) {
	if o.read == nil {
		return o.Store.ProcList(ctx)
	}
	return o.read.ProcList(ctx)
}

// MasterList is that of the store.
func (o *Over) MasterList(ctx context.Context) (map[string]map[string]string, error) {
	if o.read == nil {
		return o.Store.MasterList(ctx)
	}
	return o.read.MasterList(ctx)
}

// Heads is that of the store.
func (o *Over) Heads(ctx context.Context, queues []string) ([][]byte, error) {
	if o.read == nil {
		return o.Store.Heads(ctx, queues)
	}
	heads := make([][]byte, len(queues))
	for i, name := range queues {
		heads[i] = o.read.heads[name] // of more queues than have been read it is not known
	}
	return heads, nil
}

// Payloads returns the head of a queue, whatever more is asked for.
func (o *Over) Payloads(ctx context.Context, queue string, offset, limit int64) ([][]byte, error) {
	if o.read == nil {
		return o.Store.Payloads(ctx, queue, offset, limit)
	}
	return o.read.Payloads(ctx, queue, offset, limit)
}

// ProcLoads is that of the store.
func (o *Over) ProcLoads(ctx context.Context) ([]store.ProcLoad, error) {
	if o.read == nil {
		return o.Store.ProcLoads(ctx)
	}
	loads := make([]store.ProcLoad, len(o.read.procs))
	for i, p := range o.read.procs {
		threads, _ := strconv.Atoi(p.Fields["threads"])
		loads[i] = store.ProcLoad{Proc: p.Proc, Threads: threads, Running: int64(len(p.Running))}
	}
	return loads, nil
}

// Others is what the store says of the workers that are not resqued's.
func (o *Over) Others(ctx context.Context) (n, threads int, busy int64, err error) {
	if o.read == nil {
		return o.Store.Others(ctx)
	}
	n, threads, busy = store.CountOthers(o.read.workers)
	return n, threads, busy, nil
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
