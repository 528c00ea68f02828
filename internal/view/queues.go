package view

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/history/queueage"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// maxOldest bounds for how many queues the first job is read: one round trip each.
const maxOldest = 500

// The states of a queue.
const (
	QueueRuns    = "run"     // it is served
	QueueIdle    = "idle"    // it is not served, and it is empty
	QueueOrphan  = "orphan"  // it is not served, and jobs wait
	QueueStarved = "starved" // all of its jobs were locked when last tried
	QueuePaused  = "paused"  // its jobs are to wait
	QueueBroken  = "broken"  // its key is not a list
	QueueUnknown = "unknown" // who works it could not be read
)

// Queue is one queue.
type Queue struct {
	// Store is the store that it is in, in a list of several.
	Store string `json:"store,omitempty"`
	Queue string `json:"queue"`
	State string `json:"state"`
	// Why says why its jobs wait although they could be taken; empty = one may be taken, or
	// it is not known.
	Why string `json:"why"`
	// Size is null when the key is not a list.
	Size *int64 `json:"size"`
	// OldestS is how long the first job has waited, in seconds; null = not known yet.
	// OldestSource says how well that is known; see package queueage.
	OldestS      *int64           `json:"oldest_s"`
	OldestSource *queueage.Source `json:"oldest_source"`
	// WithinS is for how long its jobs may wait, in seconds; null = no promise was made. Late: the
	// first has waited for longer.
	WithinS *int64 `json:"within_s"`
	Late    bool   `json:"late"`
	Busy    int    `json:"busy"`
	// Cap is the most threads of one master; null = none.
	Cap *int `json:"cap"`
	// Served counts the threads and foreign workers whose queues include it.
	Served int `json:"served"`
	// Suspects counts the jobs that were set apart to run alone; Size does not.
	Suspects int64        `json:"suspects"`
	Jobs     []WaitingJob `json:"jobs,omitempty"`
	// Servers are those that work the queue, and why each of them takes none of its jobs. Lists
	// leave it out; see Serving.
	Servers []QueueServer `json:"servers,omitempty"`
	// Unread: who works it could not be read, so that Busy, Cap and Served are not known.
	Unread bool `json:"unread,omitempty"`

	// Oldest is when the first job was pushed; zero = not known.
	Oldest time.Time `json:"-"`
	// Problem says why the state is QueueBroken.
	Problem string `json:"-"`

	serving servers
	// stale: the first job may be another one by now.
	stale bool
}

// WaitingJob is one job that waits in a queue.
type WaitingJob struct {
	// Position counts from 1, the job that is next.
	Position int64           `json:"position"`
	Class    string          `json:"class"`
	Args     json.RawMessage `json:"args"`
	// Wrappers are the classes around an Active Job, inside out.
	Wrappers []string `json:"wrappers,omitempty"`
	// Invalid says why the payload is not a job.
	Invalid string `json:"invalid,omitempty"`
}

// PayloadStore reads payloads that wait in a queue.
type PayloadStore interface {
	Payloads(ctx context.Context, queue string, offset, limit int64) ([][]byte, error)
}

// QueueStore is what the view of queues needs of the store.
type QueueStore interface {
	PayloadStore
	QueueList(ctx context.Context) ([]store.QueueInfo, error)
	WorkerList(ctx context.Context) ([]store.WorkerInfo, error)
	ProcList(ctx context.Context) ([]store.ProcInfo, error)
	MasterList(ctx context.Context) (map[string]map[string]string, error)
}

// listQueues returns all queues and of them the named ones, or all if there are no names. The
// error is a NotFoundError if one of the names stands for no queue.
func listQueues(ctx context.Context, s interface {
	QueueList(ctx context.Context) ([]store.QueueInfo, error)
}, names []string,
) (all, list []store.QueueInfo, err error) {
	all, err = s.QueueList(ctx)
	if err != nil || len(names) == 0 {
		return all, all, err
	}
	list, err = FindQueues(all, names)
	return all, list, err
}

// Queues returns the named queues, or all by name. The error is a NotFoundError if one of
// the names stands for no queue. If only those who work them could not be read, there are queues
// beside the error, without what that tells of them.
func Queues(ctx context.Context, s QueueStore, names ...string) ([]*Queue, error) {
	all, list, err := listQueues(ctx, s, names)
	if err != nil {
		return nil, err
	}
	var unread [3]error
	workers, err := s.WorkerList(ctx)
	unread[0] = err
	procs, err := s.ProcList(ctx)
	unread[1] = err
	masters, err := s.MasterList(ctx)
	unread[2] = err
	err = cmp.Or(unread[:]...)
	if away(ctx, err) {
		return nil, err
	}
	busy := busyByQueue(workers, procs)
	lists := queueLists(workers)
	// Those in front of others: what is paused, or locked, holds up none.
	waiting := map[string]int64{}
	for _, q := range all {
		if q.Reason() == store.Free {
			waiting[q.Name] = q.Size
		}
	}
	crew := crews(masters, procs, all, waiting)
	views := make([]*Queue, len(list))
	for i, q := range list {
		v := &Queue{Queue: q.Name, Size: &q.Size, Suspects: q.Suspects, Unread: err != nil}
		if err == nil {
			v.Busy, v.serving = busy[q.Name], crew.of(q.Name, lists)
			v.Served, v.Cap = v.serving.workers, v.serving.leastCap()
		}
		v.judge(q)
		v.explain(q)
		if len(names) > 0 {
			v.Servers = v.Serving()
		}
		if q.Err == nil && q.Size > 0 {
			v.readOldest(ctx, s, q.Age, i < maxOldest)
		}
		if within := within(ctx)(q.Name); within > 0 {
			v.WithinS = new(seconds(within))
			v.Late = !v.Oldest.IsZero() && !v.stale && time.Since(v.Oldest) > within
		}
		views[i] = v
	}
	return views, err
}

// FindQueues returns the named queues of a list, in the order of the names. The error is a
// NotFoundError if one of them is missing.
func FindQueues(list []store.QueueInfo, names []string) ([]store.QueueInfo, error) {
	var picked []store.QueueInfo
	known := make([]string, 0, len(list))
	for _, q := range list {
		known = append(known, q.Name)
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, &NotFoundError{Kind: "queue", Name: name, Known: known}
		}
		picked = append(picked, list[i])
	}
	return picked, nil
}

// ReadJobs reads the jobs that wait in the queue, limit at most from offset on, into Jobs. It
// reports whether that is less than the queue holds. A queue that is broken has no jobs.
func (v *Queue) ReadJobs(ctx context.Context, s PayloadStore, offset, limit int64) (partial bool, err error) {
	payloads, err := s.Payloads(ctx, v.Queue, offset, limit)
	if err != nil && v.State != QueueBroken {
		return false, err
	}
	v.Jobs = []WaitingJob{}
	for i, p := range payloads {
		v.Jobs = append(v.Jobs, waitingJob(Rules(ctx), offset+int64(i)+1, p))
	}
	return v.Size != nil && int64(len(payloads)) < *v.Size, nil
}

// Is reports whether the job is of a class, or an Active Job in a wrapper of that class.
func (j WaitingJob) Is(class string) bool { return isOf([]string{class}, j.Class, j.Wrappers) }

func waitingJob(rules *redact.Rules, position int64, payload []byte) WaitingJob {
	e, err := wire.Parse(payload, 0)
	if err != nil {
		return WaitingJob{Position: position, Args: json.RawMessage("null"), Invalid: rules.Text(err.Error())}
	}
	v := WaitingJob{Position: position}
	v.Class, v.Args, v.Wrappers = shown(rules, e)
	return v
}

// queueList is a list of queues, and how many workers have it.
type queueList struct {
	patterns []string
	workers  int
	// threads are those of workers that are not resqued's, of which free have no job; one of
	// these workers has none if it is idle.
	threads, free int
	idle          bool
}

// queueLists returns the different lists of queues that workers have. There may be many
// thousand workers with the same list.
func queueLists(workers []store.WorkerInfo) []*queueList {
	var lists []*queueList
	known := map[string]*queueList{}
	for _, w := range workers {
		if !w.Named {
			continue
		}
		key := strings.Join(w.Name.Queues, "\x00")
		l := known[key]
		if l == nil {
			l = &queueList{patterns: plainPatterns(w.Name.Queues)}
			known[key], lists = l, append(lists, l)
		}
		l.workers += 1 + w.More
		if !w.Name.Ours {
			n := max(1, w.Name.Processes*w.Name.Threads)
			l.threads += n
			if w.Working == "" {
				l.free += n
			} else if n > 1 {
				l.free += n - 1 // it reports one of its jobs
			}
			l.idle = l.idle || w.Working == ""
		}
	}
	return lists
}

// judge finds the state of the queue.
func (v *Queue) judge(q store.QueueInfo) {
	switch {
	case q.Err != nil:
		v.State, v.Size, v.Problem = QueueBroken, nil, q.Err.Error()
	case q.Paused:
		v.State = QueuePaused
	case v.Served == 0 && q.Size+q.Suspects > 0 && !v.Unread:
		v.State = QueueOrphan
	case v.Served == 0 && !v.Unread:
		v.State = QueueIdle
	case q.Reason() == store.Locked || q.Reason() == store.Lined:
		v.State = QueueStarved
	case v.Unread:
		v.State = QueueUnknown
	default:
		v.State = QueueRuns
	}
}

// readOldest finds out when the first job was pushed. A queue that changes its type
// meanwhile, or a server that is busy, costs this one detail only. With payload: also from its payload.
func (v *Queue) readOldest(ctx context.Context, s PayloadStore, age store.Age, payload bool) {
	if payload {
		if head, err := s.Payloads(ctx, v.Queue, 0, 1); err == nil && len(head) > 0 {
			age = age.Head(head[0])
		}
	}
	if age.Pushed.IsZero() {
		return
	}
	v.Oldest, v.stale = age.Pushed, age.Stale
	waited := seconds(time.Since(age.Pushed))
	v.OldestS, v.OldestSource = &waited, &age.Source
}

type withinKey struct{}

// Promising returns a context for who knows how long jobs of queues may wait: a function that returns it
// for a queue, 0 = no promise was made.
func Promising(ctx context.Context, within func(queue string) time.Duration) context.Context {
	return context.WithValue(ctx, withinKey{}, within)
}

func within(ctx context.Context) func(queue string) time.Duration {
	if f, ok := ctx.Value(withinKey{}).(func(queue string) time.Duration); ok && f != nil {
		return f
	}
	return func(string) time.Duration { return 0 }
}

// OldestMark stands before the age of the first job: "≥" before a lower bound, "~" before an estimate.
func (v *Queue) OldestMark() string {
	switch {
	case v.OldestSource == nil:
		return ""
	case *v.OldestSource == queueage.AtLeast:
		return "≥"
	case *v.OldestSource == queueage.Estimate:
		return "~"
	}
	return ""
}

// busyByQueue counts the running jobs: those of resqued by its in-flight records, those of
// other workers by what they report.
func busyByQueue(workers []store.WorkerInfo, procs []store.ProcInfo) map[string]int {
	busy := map[string]int{}
	for _, p := range procs {
		for _, job := range p.Running {
			busy[job.Queue]++
		}
	}
	for _, w := range workers {
		if w.Working == "" || w.Name.Ours {
			continue
		}
		var working struct {
			Queue string `json:"queue"`
		}
		if json.Unmarshal([]byte(w.Working), &working) == nil && working.Queue != "" {
			busy[working.Queue]++
		}
	}
	return busy
}

// plainPatterns undoes what the Files.com fork does to queues in its ids:
// "mail~8" is the queue mail with a cap.
func plainPatterns(queues []string) []string {
	out := make([]string, len(queues))
	for i, q := range queues {
		name, limit, capped := strings.Cut(q, "~")
		if _, err := strconv.Atoi(strings.TrimSuffix(limit, "%")); capped && err == nil {
			q = name
		}
		out[i] = q
	}
	return out
}
