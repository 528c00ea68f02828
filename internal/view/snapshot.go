package view

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
)

// Snapshot is the state of queues, workers and jobs, from one read of each list in Redis.
type Snapshot struct {
	Queues  []*Queue
	Workers []*Worker
	Jobs    []*Job
	// Processed and Failed are Resque's counters.
	Processed, Failed int64
	// Unread says which parts could not be read.
	Unread Unread
	// At is when the counters were read, Took how long the whole snapshot took.
	At   time.Time
	Took time.Duration

	read *onceRead
}

// Unread are why parts of a snapshot could not be read. A list that is not nil is incomplete:
// queues lack what depends on workers, workers are resqued's only.
type Unread struct{ Queues, Workers, Jobs, Counters error }

// First returns one of the reasons; nil = everything was read.
func (u Unread) First() error { return cmp.Or(u.Queues, u.Workers, u.Jobs, u.Counters) }

// SnapshotStore is what a snapshot needs of the store.
type SnapshotStore interface {
	QueueStore
	Stats(ctx context.Context) (processed, failed int64, err error)
	Heads(ctx context.Context, queues []string) ([][]byte, error)
}

// Snap takes a snapshot. It fails only if the server or every list fails; else see Unread.
func Snap(ctx context.Context, s SnapshotStore) (*Snapshot, error) {
	begun := time.Now()
	read, err := readOnce(ctx, s)
	if err != nil {
		return nil, err
	}
	v := &Snapshot{read: read}
	v.Queues, v.Unread.Queues = Queues(ctx, read)
	v.Workers, v.Unread.Workers = Workers(ctx, read)
	v.Jobs, v.Unread.Jobs = Jobs(ctx, read)
	v.Processed, v.Failed, v.Unread.Counters = s.Stats(ctx)
	if err := v.Unread.Counters; err != nil && (away(ctx, err) || v.Queues == nil && v.Workers == nil && v.Jobs == nil) {
		return nil, err
	}
	v.At, v.Took = time.Now(), time.Since(begun)
	return v, nil
}

// away reports whether the server does not answer, so that further reads are pointless.
func away(ctx context.Context, err error) bool {
	return err != nil && (rdb.Unreachable(err) || ctx.Err() != nil)
}

// onceRead is what views of queues, workers and jobs read, each list with its error.
type onceRead struct {
	queues  []store.QueueInfo
	workers []store.WorkerInfo
	procs   []store.ProcInfo
	masters map[string]map[string]string
	heads   map[string][]byte

	queuesErr, workersErr, procsErr, mastersErr error
}

func readOnce(ctx context.Context, s SnapshotStore) (*onceRead, error) {
	r := &onceRead{heads: map[string][]byte{}}
	if r.queues, r.queuesErr = s.QueueList(ctx); away(ctx, r.queuesErr) {
		return nil, r.queuesErr
	}
	if r.workers, r.workersErr = s.WorkerList(ctx); away(ctx, r.workersErr) {
		return nil, r.workersErr
	}
	if r.procs, r.procsErr = s.ProcList(ctx); away(ctx, r.procsErr) {
		return nil, r.procsErr
	}
	r.workers = fewer(r.workers, r.procs)
	if r.masters, r.mastersErr = s.MasterList(ctx); away(ctx, r.mastersErr) {
		return nil, r.mastersErr
	}
	var names []string
	for i, q := range r.queues {
		if i < maxOldest && q.Size > 0 {
			names = append(names, q.Name)
		}
	}
	heads, err := s.Heads(ctx, names)
	if away(ctx, err) {
		return nil, err
	}
	for i, head := range heads { // without them only ages are missing
		r.heads[names[i]] = head
	}
	return r, nil
}

// fewer merges resqued's threads of known processes with the same queues: there may be 100,000.
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

func (r *onceRead) QueueList(context.Context) ([]store.QueueInfo, error) {
	return r.queues, r.queuesErr
}

func (r *onceRead) WorkerList(context.Context) ([]store.WorkerInfo, error) {
	return r.workers, r.workersErr
}

func (r *onceRead) ProcList(context.Context) ([]store.ProcInfo, error) { return r.procs, r.procsErr }

func (r *onceRead) MasterList(context.Context) (map[string]map[string]string, error) {
	return r.masters, r.mastersErr
}

// Heads returns what was read; the heads of other queues are unknown.
func (r *onceRead) Heads(_ context.Context, queues []string) ([][]byte, error) {
	heads := make([][]byte, len(queues))
	for i, name := range queues {
		heads[i] = r.heads[name]
	}
	return heads, nil
}

// Payloads returns the head of a queue only.
func (r *onceRead) Payloads(_ context.Context, queue string, _, _ int64) ([][]byte, error) {
	if head := r.heads[queue]; head != nil {
		return [][]byte{head}, nil
	}
	return nil, nil
}

// ProcLoads implements StatsStore.
func (r *onceRead) ProcLoads(context.Context) ([]store.ProcLoad, error) {
	loads := make([]store.ProcLoad, len(r.procs))
	for i, p := range r.procs {
		threads, _ := strconv.Atoi(p.Fields["threads"])
		loads[i] = store.ProcLoad{Proc: p.Proc, Threads: threads, Running: int64(len(p.Running))}
	}
	return loads, r.procsErr
}

// Others implements StatsStore.
func (r *onceRead) Others(context.Context) (n, threads int, busy int64, err error) {
	n, threads, busy = store.CountOthers(r.workers)
	return n, threads, busy, r.workersErr
}

// OverStore is a store, or one that answers from a snapshot's reads where it can.
type OverStore interface {
	StatsStore
	QueueStore
	UniqueStore
}

// over is a store. onceRead is embedded less deep: its methods hide those of the store.
type over struct {
	*onceRead
	below
}

type below struct{ *store.Store }

// Over returns the store as of the snapshot; a nil snapshot has read nothing.
func (v *Snapshot) Over(s *store.Store) OverStore {
	if v == nil {
		return s
	}
	return over{v.read, below{s}}
}

// Fresh is like Over, but reads the queues anew.
func (v *Snapshot) Fresh(s *store.Store) QueueStore {
	if v == nil {
		return s
	}
	return fresh{over{v.read, below{s}}}
}

type fresh struct{ over }

func (f fresh) QueueList(ctx context.Context) ([]store.QueueInfo, error) {
	return f.Store.QueueList(ctx)
}

func (f fresh) Payloads(ctx context.Context, queue string, offset, limit int64) ([][]byte, error) {
	return f.Store.Payloads(ctx, queue, offset, limit)
}

// LocksHeld counts the locks that running jobs hold.
func LocksHeld(jobs []*Job) int {
	n := 0
	for _, j := range jobs {
		if j.Record.LockKey != "" {
			n++
		}
	}
	return n
}
