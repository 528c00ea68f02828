package view

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
)

// countedDelays is for how many of resque-scheduler's times the delayed jobs are counted.
const countedDelays = 1000

// Stats are the totals of a namespace.
type Stats struct {
	// Processed and Failed are Resque's counters, which users may reset.
	Processed int64 `json:"processed"`
	Failed    int64 `json:"failed"`
	// ProcessedPerS and FailedPerS are measured over IntervalS; null = not measured, or a reset.
	ProcessedPerS *float64 `json:"processed_per_s"`
	FailedPerS    *float64 `json:"failed_per_s"`
	IntervalS     *float64 `json:"interval_s"`
	// Running counts jobs in flight, Threads all threads; both include foreign workers.
	Running int64 `json:"running"`
	Threads int   `json:"threads"`
	// Daemons counts living masters, Processes their worker processes, Others foreign workers.
	Daemons   int `json:"daemons"`
	Processes int `json:"processes"`
	Others    int `json:"others"`
	// Queues counts all queues, QueuesWaiting those with jobs, QueuesPaused the paused ones.
	Queues        int `json:"queues"`
	QueuesWaiting int `json:"queues_waiting"`
	QueuesPaused  int `json:"queues_paused"`
	// Waiting counts the jobs in queues, suspects included.
	Waiting int64 `json:"waiting"`
	// OldestS is the longest wait of a queue's first job; null = unknown, or nothing waits.
	OldestS *int64 `json:"oldest_s"`
	// Delayed counts delayed jobs; with DelayedPartial there are more.
	Delayed        int64 `json:"delayed"`
	DelayedPartial bool  `json:"delayed_partial"`
	Failures       int64 `json:"failures"`
	Parked         int64 `json:"parked"`
	// LongJobs counts long jobs that wait or run.
	LongJobs int64 `json:"longjobs"`
	// Needed is how many threads are needed, if that was asked for; nil = not known.
	Needed *Needed `json:"threads_needed,omitempty"`
	// Missing says why a total (by its JSON name), 0 here and null in JSON, could not be read.
	Missing map[string]string `json:"missing,omitempty"`

	// At is when the counters were read.
	At time.Time `json:"-"`
}

// MarshalJSON writes null for the totals in Missing.
func (v *Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	text, err := json.Marshal((*plain)(v))
	if err != nil || len(v.Missing) == 0 {
		return text, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	for name := range v.Missing {
		fields[name] = json.RawMessage("null")
	}
	return json.Marshal(fields)
}

// Known reports whether all of the named totals could be read.
func (v *Stats) Known(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return v.Missing[name] != "" })
}

// StatsStore is what the totals need of the store.
type StatsStore interface {
	Stats(ctx context.Context) (processed, failed int64, err error)
	QueueList(ctx context.Context) ([]store.QueueInfo, error)
	Heads(ctx context.Context, queues []string) ([][]byte, error)
	ProcLoads(ctx context.Context) ([]store.ProcLoad, error)
	MasterList(ctx context.Context) (map[string]map[string]string, error)
	Others(ctx context.Context) (n, threads int, busy int64, err error)
	Delayed(ctx context.Context, lists int64) (n int64, partial bool, err error)
	FailureCount(ctx context.Context) (int64, error)
	ParkedCount(ctx context.Context) (int64, error)
}

// ReadStats returns the totals. It only reads lengths: the cost does not grow with jobs. If only
// some totals could not be read, it returns the others with an error; see Missing.
func ReadStats(ctx context.Context, s StatsStore, long *longstore.Store) (*Stats, error) {
	v := &Stats{}
	var first error
	some := false
	for _, read := range []func() error{
		func() error { return v.readProcs(ctx, s) },
		func() error { return v.readOthers(ctx, s) },
		func() error { return v.readQueues(ctx, s) },
		func() (err error) {
			v.Delayed, v.DelayedPartial, err = s.Delayed(ctx, countedDelays)
			return v.lack(err, "delayed")
		},
		func() (err error) { v.Failures, err = s.FailureCount(ctx); return v.lack(err, "failures") },
		func() (err error) { v.Parked, err = s.ParkedCount(ctx); return v.lack(err, "parked") },
		func() (err error) { v.LongJobs, err = long.Active(ctx); return v.lack(err, "longjobs") },
		func() error { return v.lack(v.readCounters(ctx, s), "processed", "failed") },
	} {
		err := read()
		if away(ctx, err) {
			return nil, err
		}
		first, some = cmp.Or(first, err), some || err == nil
	}
	if !some {
		return nil, first
	}
	return v, first
}

// lack marks totals as missing if there is an error, and returns it.
func (v *Stats) lack(err error, names ...string) error {
	if err == nil {
		return nil
	}
	if v.Missing == nil {
		v.Missing = map[string]string{}
	}
	for _, name := range names {
		v.Missing[name] = cmp.Or(v.Missing[name], Plainly(filter.Mask(err.Error())))
	}
	return err
}

func (v *Stats) readCounters(ctx context.Context, s StatsStore) (err error) {
	v.Processed, v.Failed, err = s.Stats(ctx)
	v.At = time.Now()
	return err
}

// Again returns the totals with new counters, and their rates since v.
func (v *Stats) Again(ctx context.Context, s StatsStore) (*Stats, error) {
	later := *v
	if err := later.readCounters(ctx, s); err != nil {
		return nil, err
	}
	later.Measure(v)
	return &later, nil
}

// Measure sets the rates since earlier totals.
func (v *Stats) Measure(before *Stats) {
	passed := v.At.Sub(before.At).Seconds()
	if passed <= 0 || !v.Known("processed") || !before.Known("processed") {
		return
	}
	v.IntervalS = &passed
	v.ProcessedPerS = GrowthRate(before.Processed, v.Processed, passed)
	v.FailedPerS = GrowthRate(before.Failed, v.Failed, passed)
}

// GrowthRate returns a counter's growth per second, nil if it was reset or no time has passed.
func GrowthRate(before, now int64, seconds float64) *float64 {
	if now < before || seconds <= 0 {
		return nil
	}
	return new(float64(now-before) / seconds)
}

func (v *Stats) readProcs(ctx context.Context, s StatsStore) error {
	loads, err := s.ProcLoads(ctx)
	if err = v.lack(err, "running", "threads", "processes"); away(ctx, err) {
		return err
	}
	masters, other := s.MasterList(ctx)
	err = cmp.Or(err, v.lack(other, "threads", "daemons"))
	v.Daemons, v.Processes = len(masters), len(loads)
	for _, fields := range masters {
		v.Threads += threadsOf(fields)
	}
	for _, p := range loads {
		v.Running += p.Running
		if unseen(masters[masterOf(p.Proc)]) {
			v.Threads += p.Threads
		}
	}
	return err
}

func (v *Stats) readOthers(ctx context.Context, s StatsStore) error {
	others, threads, busy, err := s.Others(ctx)
	v.Others = others
	v.Threads += threads
	v.Running += busy
	return v.lack(err, "others", "threads", "running")
}

func (v *Stats) readQueues(ctx context.Context, s StatsStore) error {
	queues, err := s.QueueList(ctx)
	if err != nil {
		return v.lack(err, "queues", "queues_waiting", "queues_paused", "waiting")
	}
	v.Queues = len(queues)
	var waiting []store.QueueInfo
	var names []string
	for _, q := range queues {
		if q.Paused {
			v.QueuesPaused++
		}
		if q.Size+q.Suspects == 0 {
			continue
		}
		v.QueuesWaiting++
		v.Waiting += q.Size + q.Suspects
		if q.Size == 0 {
			continue
		}
		if waiting = append(waiting, q); len(names) < maxOldest {
			names = append(names, q.Name)
		}
	}
	heads, err := s.Heads(ctx, names)
	if err != nil {
		return err
	}
	now := time.Now()
	for i, q := range waiting {
		age := q.Age
		if i < len(heads) {
			age = age.Head(heads[i])
		}
		if age.Pushed.IsZero() {
			continue
		}
		if waited := seconds(now.Sub(age.Pushed)); v.OldestS == nil || waited > *v.OldestS {
			v.OldestS = &waited
		}
	}
	return nil
}
