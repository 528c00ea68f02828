package view

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/history/queueage"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// maxOldest limits the queues whose first job is read: one round trip each.
const maxOldest = 500

// States of a queue.
const (
	QueueRuns    = "run"     // it is served
	QueueIdle    = "idle"    // it is neither served nor filled
	QueueOrphan  = "orphan"  // it is not served, but jobs wait
	QueueStarved = "starved" // all of its jobs were locked at the last look, or wait for limits
	QueuePaused  = "paused"
	QueueBroken  = "broken"  // its key is not a list
	QueueUnknown = "unknown" // the workers could not be read
)

// Queue is a queue as people see it.
type Queue struct {
	// Store is the queue's store, in a list of several stores.
	Store string `json:"store,omitempty"`
	Queue string `json:"queue"`
	State string `json:"state"`
	// Why is why its jobs wait; empty = one may be taken, or the reason is unknown.
	Why string `json:"why"`
	// Pauses are who has paused it, or all queues, and until when.
	Pauses []*store.Pause `json:"pauses,omitempty"`
	// Limits are those for which its jobs wait, each with its key.
	Limits []string `json:"limits,omitempty"`
	// Size is null if the key is not a list.
	Size *int64 `json:"size"`
	// OldestS is how many seconds the first job has waited; null = not known yet. OldestSource
	// says how exact that is; see package queueage.
	OldestS      *int64           `json:"oldest_s"`
	OldestSource *queueage.Source `json:"oldest_source"`
	// WithinS is how long its jobs may wait; null = no limit. Late: the first has waited longer.
	WithinS *int64 `json:"within_s"`
	Late    bool   `json:"late"`
	Busy    int    `json:"busy"`
	// Cap is the most threads of one master; null = no cap.
	Cap *int `json:"cap"`
	// Served counts the threads and foreign workers whose queues include it.
	Served int `json:"served"`
	// Suspects counts the jobs that are quarantined to run alone. Size excludes them.
	Suspects int64        `json:"suspects"`
	Jobs     []WaitingJob `json:"jobs,omitempty"`
	// Servers are the queue's workers, each with why it takes no job. Empty in lists; see Serving.
	Servers []QueueServer `json:"servers,omitempty"`
	// Unread says that the workers could not be read: Busy, Cap and Served are unknown.
	Unread bool `json:"unread,omitempty"`

	// Oldest is when the first job was pushed; zero = unknown.
	Oldest time.Time `json:"-"`
	// Problem is why the state is QueueBroken.
	Problem string `json:"-"`

	serving servers
	// stale says that another job may be first by now.
	stale bool
}

// Waiting returns Size, 0 if it is unknown.
func (v *Queue) Waiting() int64 {
	if v.Size == nil {
		return 0
	}
	return *v.Size
}

// WaitingJob is a job that waits in a queue.
type WaitingJob struct {
	// Position counts from 1, the next job.
	Position int64           `json:"position"`
	Class    string          `json:"class"`
	Args     json.RawMessage `json:"args"`
	// Wrappers are the classes around an Active Job, innermost first.
	Wrappers []string `json:"wrappers,omitempty"`
	// Invalid is why the payload is not a job.
	Invalid string `json:"invalid,omitempty"`
}

// WaitingJobs returns those of n waiting jobs of a queue from an offset on that fit, and how many were read.
func WaitingJobs(ctx context.Context, s PayloadStore, queue string, m *filter.Matcher, offset, n int64) (jobs []WaitingJob, read int64, err error) {
	payloads, err := s.Payloads(ctx, queue, offset, n)
	for i, p := range payloads {
		if _, _, ok := m.Job(filter.Job{Queue: queue, Payload: p}); ok {
			jobs = append(jobs, waitingJob(redact.From(ctx), offset+int64(i)+1, p))
		}
	}
	return jobs, int64(len(payloads)), err
}

// PayloadStore reads payloads that wait in a queue.
type PayloadStore interface {
	Payloads(ctx context.Context, queue string, offset, limit int64) ([][]byte, error)
}

// QueueStore is what the view of queues needs of the store.
type QueueStore interface {
	PayloadStore
	QueueList(ctx context.Context) ([]store.QueueInfo, error)
	WorkerStore
}

// listQueues returns all queues, and the named ones (all without names), or a NotFoundError.
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

// Queues returns the named queues, or all by name; a NotFoundError for an unknown name. If only
// the workers could not be read, it returns queues without what depends on them, and an error.
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
	// Paused and locked queues don't hold up those behind them.
	waiting := map[string]int64{}
	for _, q := range all {
		if q.Reason() == store.Free {
			waiting[q.Name] = q.Size
		}
	}
	crew := crews(masters, procs, all, waiting)
	limits := limitsOf(ctx, s, list)
	views := make([]*Queue, len(list))
	for i, q := range list {
		v := &Queue{Queue: q.Name, Size: &q.Size, Suspects: q.Suspects, Unread: err != nil, Pauses: q.Pauses}
		if err == nil {
			v.Busy, v.serving = busy[q.Name], crew.of(q.Name, lists)
			v.Served, v.Cap = v.serving.workers, v.serving.leastCap()
		}
		v.judge(q)
		v.Limits = limitsInWay(limits, q.Name)
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

// FindQueues returns the named queues, in the order of names, or a NotFoundError.
func FindQueues(list []store.QueueInfo, names []string) ([]store.QueueInfo, error) {
	return exactly(list, names, "queue", func(q store.QueueInfo) string { return q.Name })
}

// ReadJobs reads at most limit waiting jobs from offset on into Jobs. partial reports whether the
// queue holds more. A broken queue has no jobs.
func (v *Queue) ReadJobs(ctx context.Context, s PayloadStore, offset, limit int64) (partial bool, err error) {
	payloads, err := s.Payloads(ctx, v.Queue, offset, limit)
	if err != nil && v.State != QueueBroken {
		return false, err
	}
	v.Jobs = []WaitingJob{}
	for i, p := range payloads {
		v.Jobs = append(v.Jobs, waitingJob(redact.From(ctx), offset+int64(i)+1, p))
	}
	return v.Size != nil && int64(len(payloads)) < *v.Size, nil
}

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
	// threads counts foreign workers' threads, free those without a job; idle: one has no job.
	threads, free int
	idle          bool
}

// queueLists returns the distinct queue lists of workers: thousands of workers may share one.
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

// readOldest finds out when the first job was pushed, with payload also from that. It ignores
// errors.
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
	v.OldestS, v.OldestSource = new(seconds(time.Since(age.Pushed))), &age.Source
}

type withinKey struct{}

// Promising returns a context with a function for how long jobs of queues may wait; 0 = no limit.
func Promising(ctx context.Context, within func(queue string) time.Duration) context.Context {
	return context.WithValue(ctx, withinKey{}, within)
}

func within(ctx context.Context) func(queue string) time.Duration {
	if f, ok := ctx.Value(withinKey{}).(func(queue string) time.Duration); ok && f != nil {
		return f
	}
	return func(string) time.Duration { return 0 }
}

// OldestMark precedes the age of the first job: "≥" marks a lower bound, "~" an estimate.
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

// busyByQueue counts running jobs: in-flight records, and what foreign workers report.
func busyByQueue(workers []store.WorkerInfo, procs []store.ProcInfo) map[string]int {
	busy := map[string]int{}
	for _, p := range procs {
		for _, job := range p.Running {
			busy[job.Queue]++
		}
	}
	for _, w := range workers {
		if said, _ := reported(w.Working); !w.Name.Ours && said.Queue != "" {
			busy[said.Queue]++
		}
	}
	return busy
}

// plainPatterns removes the caps in worker ids of the Files.com fork: "mail~8" is the queue mail.
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
