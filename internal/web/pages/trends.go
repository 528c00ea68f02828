package pages

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/view"
)

const (
	// remembered is how many samples a trend holds.
	remembered = 120
	// trended limits the queues, and the processes, that have a trend.
	trended = 10_000
)

// Trends is the course of queue lengths, process memory and counters over recent samples, in the
// sampler's memory: four bytes per sample of each queue and process.
type Trends struct {
	mu       sync.Mutex
	at       []time.Time // of the last samples
	done     []float64   // per second since the previous sample; NaN = unknown
	failed   []float64
	last     *view.Snapshot
	queues   map[string]*trend
	procs    map[string]*trend
	progress map[string]progress
	sample   int
	flows    []flow
}

// flow is how many jobs of each queue had run at a time, and how many waited.
type flow struct {
	at          time.Time
	runs, sizes map[string]int64
}

const (
	// flowsFor is the time over which rates are computed: daemons write every 10 s or less often.
	flowsFor  = time.Minute
	flowsKept = 16
)

// trend is the values of one thing; seen is the number of its last sample.
type trend struct {
	values []float32
	seen   int
}

// progress is how fast a process ends jobs. Its count changes with heartbeats only.
type progress struct {
	done int
	beat time.Time
	rate *float64
}

func (t *trend) add(v float64, sample int) {
	for gap := sample - t.seen - 1; gap > 0 && len(t.values) > 0; gap-- {
		t.values = append(t.values, float32(math.NaN()))
	}
	t.values = append(t.values, float32(v))
	if over := len(t.values) - remembered; over > 0 {
		t.values = slices.Delete(t.values, 0, over)
	}
	t.seen = sample
}

func (t *trend) all() []float64 {
	if t == nil {
		return nil
	}
	out := make([]float64, len(t.values))
	for i, v := range t.values {
		out[i] = float64(v)
	}
	return out
}

// NewTrends returns empty trends.
func NewTrends() *Trends {
	return &Trends{queues: map[string]*trend{}, procs: map[string]*trend{}, progress: map[string]progress{}}
}

// Add adds a sample.
func (t *Trends) Add(s *view.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sample++
	done, failed := math.NaN(), math.NaN()
	if t.last != nil && t.last.Unread.Counters == nil && s.Unread.Counters == nil {
		passed := s.At.Sub(t.last.At).Seconds()
		if r := view.GrowthRate(t.last.Processed, s.Processed, passed); r != nil {
			done = *r
		}
		if r := view.GrowthRate(t.last.Failed, s.Failed, passed); r != nil {
			failed = *r
		}
	}
	t.at, t.done, t.failed = append(t.at, s.At), append(t.done, done), append(t.failed, failed)
	if over := len(t.at) - remembered; over > 0 {
		t.at, t.done, t.failed = slices.Delete(t.at, 0, over), slices.Delete(t.done, 0, over), slices.Delete(t.failed, 0, over)
	}
	t.last = s
	for _, q := range s.Queues {
		if q.Size != nil {
			follow(t.queues, q.Queue, float64(*q.Size), t.sample)
		}
	}
	for _, w := range s.Workers {
		for _, p := range w.Processes {
			follow(t.procs, p.Proc, float64(p.RSS), t.sample)
			t.count(p)
		}
	}
	// Forget queues and processes that have been away for long.
	for name, q := range t.queues {
		if t.sample-q.seen > remembered {
			delete(t.queues, name)
		}
	}
	for name, p := range t.procs {
		if t.sample-p.seen > 2 {
			delete(t.procs, name)
			delete(t.progress, name)
		}
	}
}

func follow(of map[string]*trend, name string, value float64, sample int) {
	one := of[name]
	if one == nil {
		if len(of) >= trended {
			return
		}
		one = &trend{}
		of[name] = one
	}
	one.add(value, sample)
}

func (t *Trends) count(p view.Process) {
	before, ok := t.progress[p.Proc]
	if !ok && len(t.progress) >= trended {
		return
	}
	if ok && p.Beat.After(before.beat) && p.Done >= before.done {
		if r := view.GrowthRate(int64(before.done), int64(p.Done), p.Beat.Sub(before.beat).Seconds()); r != nil {
			if before.rate != nil { // recent heartbeats count more
				*r = (*r + *before.rate) / 2
			}
			t.progress[p.Proc] = progress{done: p.Done, beat: p.Beat, rate: r}
		}
		return
	}
	if !ok {
		t.progress[p.Proc] = progress{done: p.Done, beat: p.Beat}
	}
}

// Queue returns the lengths of a queue in the last samples.
func (t *Trends) Queue(name string) []float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queues[name].all()
}

// Memory returns the memory of a process in the last samples.
func (t *Trends) Memory(proc string) []float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.procs[proc].all()
}

// Rate returns how many jobs a process ends per second; nil = not known yet.
func (t *Trends) Rate(proc string) *float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.progress[proc].rate
}

// Charts of samples show the last ten minutes, whatever the samples' distance.
const (
	chartSpans = 120
	chartStep  = 5 * time.Second
)

// Flow is the chart of jobs per second.
func (t *Trends) Flow() *Chart {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &Chart{Title: "Jobs a second", Unit: "/s", Step: chartStep, Empty: "Rates appear here after a few seconds of watching."}
	if len(t.at) < 2 {
		return c
	}
	c.From = t.from()
	done, failed := nothing(), nothing()
	for i := 1; i < len(t.at); i++ {
		// A rate covers the time since the previous sample.
		fill(done, c.From, t.at[i-1], t.at[i], t.done[i])
		fill(failed, c.From, t.at[i-1], t.at[i], t.failed[i])
	}
	c.Series = []Series{{Name: "done", Values: done}, {Name: "failed", Values: failed, Alert: true}}
	return c
}

// Length is the chart of a queue's length.
func (t *Trends) Length(name string) *Chart {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &Chart{Title: "Jobs waiting", Step: chartStep, Empty: "Lengths appear here after a few seconds of watching."}
	q := t.queues[name]
	if q == nil || len(t.at) < 2 {
		return c
	}
	c.From = t.from()
	values := nothing()
	first := len(t.at) - (t.sample - q.seen) - len(q.values)
	for i, v := range q.values {
		at := first + i
		if at < 0 || at >= len(t.at) {
			continue
		}
		// A length holds until the next sample.
		until := t.at[len(t.at)-1].Add(chartStep)
		if at+1 < len(t.at) {
			until = t.at[at+1]
		}
		fill(values, c.From, t.at[at], until, float64(v))
	}
	c.Series = []Series{{Name: "waiting", Values: values}}
	return c
}

func (t *Trends) from() time.Time {
	return t.at[len(t.at)-1].Truncate(chartStep).Add(-(chartSpans - 1) * chartStep)
}

func nothing() []float64 {
	values := make([]float64, chartSpans)
	for i := range values {
		values[i] = math.NaN()
	}
	return values
}

// fill puts a value into the spans between two instants.
func fill(values []float64, first time.Time, from, until time.Time, v float64) {
	i := max(0, int(from.Sub(first)/chartStep))
	end := int((until.Sub(first) + chartStep - 1) / chartStep)
	for ; i < min(end, len(values)); i++ {
		values[i] = v
	}
}

// AddRuns adds how many jobs of each queue have run in total. It belongs to the last sample.
func (t *Trends) AddRuns(at time.Time, runs map[string]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := flow{at: at, runs: runs, sizes: map[string]int64{}}
	if t.last != nil {
		for _, q := range t.last.Queues {
			if _, ran := runs[q.Queue]; ran && q.Size != nil {
				f.sizes[q.Queue] = *q.Size
			}
		}
	}
	t.flows = append(t.flows, f)
	if over := len(t.flows) - flowsKept; over > 0 {
		t.flows = slices.Delete(t.flows, 0, over)
	}
}

// Rates returns how many jobs of a queue come and go per second, over about a minute; nil =
// unknown. Jobs that foreign workers take don't count.
func (t *Trends) Rates(queue string) (in, out *float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.flows) < 2 {
		return nil, nil
	}
	now := t.flows[len(t.flows)-1]
	then := now
	for _, f := range slices.Backward(t.flows) {
		if then = f; now.at.Sub(f.at) >= flowsFor {
			break
		}
	}
	passed := now.at.Sub(then.at).Seconds()
	ran, ok := now.runs[queue]
	if !ok || passed <= 0 {
		return nil, nil
	}
	before, sized := then.runs[queue]
	out = view.GrowthRate(before, ran, passed)
	if out == nil || !sized {
		return nil, out
	}
	if size, ok := now.sizes[queue]; ok {
		if was, ok := then.sizes[queue]; ok {
			rate := max(0, *out+float64(size-was)/passed)
			in = &rate
		}
	}
	return in, out
}
