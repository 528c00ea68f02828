package web

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

const (
	// looked is how long after a request a visitor counts as watching. Samples are taken every
	// sampleEvery then, otherwise every restEvery.
	looked      = 15 * time.Second
	sampleEvery = 2 * time.Second
	restEvery   = 30 * time.Second
	// modest is the pause as a multiple of a sample's time: at most 2 % of Redis's time.
	modest = 50
	// checkEvery is how often the checks of `resqued doctor` run.
	checkEvery    = 15 * time.Second
	sampleTimeout = 20 * time.Second
	// sampleWait is how long a request waits for a newer sample, firstWait for the first.
	sampleWait, firstWait = time.Second, 4 * time.Second
	// countedRuns is how many long jobs, the newest, are counted by status.
	countedRuns = 10_000
	// kept is how many samples charts can show: half an hour of watching.
	kept = 900
)

// Point is a point of a chart.
type Point struct {
	At        time.Time `json:"at"`
	Processed int64     `json:"processed"`
	Failed    int64     `json:"failed"`
	Busy      int       `json:"busy"`
	Threads   int       `json:"threads"`
	Waiting   int64     `json:"waiting"`
}

// Sample is the server's last sample. Its data is immutable.
type Sample struct {
	pages.Sampled
	// Hidden has workers and jobs without arguments; nil if all visitors may see them.
	Hidden *view.Snapshot
	// Snap is the snapshot of those parts; a part that is not in it may be older.
	Snap *view.Snapshot
	// Err is why Redis did not answer, or nil.
	Err    error
	Server pages.Widget[rdb.Server]
	// Totals are the sums of the history since its beginning.
	Totals pages.Widget[[]view.Total]
	Long   pages.Widget[longstore.Statuses]
	// Limits are the sums of limits.
	Limits pages.Widget[[]limitUse]
	// Ends counts the ends of processes since this server's first look.
	Ends pages.Widget[Ends]
	// Points are earlier samples, the oldest first.
	Points []Point
	// At is when it was taken, Took how long that took.
	At   time.Time
	Took time.Duration
	// late: a newer one takes too long.
	late bool
}

// rest is how long Redis is left alone, times as long as the sample took. After a sample without
// an answer it is 0: Redis was idle, and visitors want to see that it is back.
func (v Sample) rest(times time.Duration) time.Duration {
	parts := []error{v.Queues.Err, v.Workers.Err, v.Jobs.Err}
	if !slices.Contains(parts, nil) || slices.ContainsFunc(parts, rdb.Waitable) {
		return 0
	}
	return times * v.Took
}

// unread marks all readable parts with a reason why they are not current.
func (v Sample) unread(err error) Sample {
	v.Err = cmp.Or(v.Err, err)
	for _, e := range []*error{&v.Queues.Err, &v.Workers.Err, &v.Jobs.Err, &v.Stats.Err, &v.Server.Err, &v.Findings.Err, &v.Totals.Err, &v.Long.Err, &v.Limits.Err, &v.Ends.Err} {
		if *e == nil {
			*e = err
		}
	}
	return v
}

// take takes the parts of a snapshot; if it is nil, err is the reason.
func (v *Sample) take(snap *view.Snapshot, err error, hide bool) {
	if snap == nil {
		v.Queues.Err, v.Workers.Err, v.Jobs.Err = err, err, err
		return
	}
	v.Snap = snap
	v.Queues.TakeSome(snap.Queues, snap.Queues != nil, snap.Unread.Queues)
	v.Workers.TakeSome(snap.Workers, snap.Workers != nil, snap.Unread.Workers)
	v.Jobs.TakeSome(snap.Jobs, snap.Jobs != nil, snap.Unread.Jobs)
	if hide { // also parts kept from earlier samples
		hidden := view.Snapshot{Workers: v.Workers.Data, Jobs: v.Jobs.Data}
		v.Hidden = hidden.Redacted(redact.All())
	}
}

type sampler struct {
	o      Options
	beside *beside
	trends *pages.Trends

	mu     sync.Mutex
	now    Sample
	seen   time.Time // the last request
	asked  chan struct{}
	taking *taking // the sample in progress, if any
	// outdated is when something was last changed here; see outdate.
	outdated time.Time
}

// taking is a sample in progress. v is set when done is closed.
type taking struct {
	begun time.Time
	done  chan struct{}
	v     Sample
}

func newSampler(o Options, b *beside) *sampler {
	return &sampler{o: o, beside: b, trends: pages.NewTrends(), asked: make(chan struct{}, 1)}
}

// sample returns the last sample, or takes the first one. The visitor counts as watching.
func (s *sampler) sample(ctx context.Context) Sample { return s.shown(ctx, s.last()) }

// shown returns a sample as the visitor of ctx may see it.
func (s *sampler) shown(ctx context.Context, v Sample) Sample {
	if v.Hidden != nil && visitorIn(ctx).Role < Operator {
		v.Workers.Data, v.Jobs.Data = v.Hidden.Workers, v.Hidden.Jobs
	}
	return v
}

func (s *sampler) last() Sample {
	s.mu.Lock()
	resting := time.Since(s.seen) > looked
	s.seen = time.Now()
	now := s.now
	// Requests don't each wait for a sample that hangs.
	if now.late = s.taking != nil && time.Since(s.taking.begun) > sampleWait+2*now.Took && !now.At.IsZero(); now.late {
		now = now.unread(errNotYet)
	}
	fresh := time.Since(now.At) < restEvery+sampleTimeout && s.current(now)
	s.mu.Unlock()
	if resting {
		select {
		case s.asked <- struct{}{}:
		default:
		}
	}
	if fresh {
		return now
	}
	// The sampler does not run: a handler mounted elsewhere, or the first request.
	return s.take()
}

func (s *sampler) run(ctx context.Context) {
	for ctx.Err() == nil {
		v := s.await(s.begin(), 0)
		s.mu.Lock()
		pause := restEvery
		if time.Since(s.seen) <= looked {
			pause = sampleEvery
		}
		s.mu.Unlock()
		least := time.NewTimer(max(min(v.rest(modest), time.Minute), sampleEvery))
		most := time.NewTimer(max(pause, v.rest(modest)))
		select {
		case <-ctx.Done():
		case <-most.C:
		case <-s.asked: // not before the minimum pause
			select {
			case <-ctx.Done():
			case <-least.C:
			}
		}
		least.Stop()
		most.Stop()
	}
}

// take returns a sample begun after the last change, or in time the last one: no page hangs.
func (s *sampler) take() Sample {
	s.mu.Lock()
	now := s.now
	newer := time.Since(now.At) < sampleEvery/4 && s.current(now) // another request has just taken one
	s.mu.Unlock()
	wait := sampleWait
	if now.At.IsZero() {
		wait = firstWait
	}
	for until := time.Now().Add(wait); !newer; {
		left := time.Until(until)
		if left <= 0 {
			return now.unread(errNotYet)
		}
		if v := s.await(s.begin(), left); !v.At.IsZero() {
			s.mu.Lock()
			now, newer = v, s.current(v)
			s.mu.Unlock()
		}
	}
	return now
}

// await returns a sample when it has been taken, or a zero one after atMost; 0 = no limit.
func (*sampler) await(t *taking, atMost time.Duration) Sample {
	var late <-chan time.Time
	if atMost > 0 {
		timer := time.NewTimer(atMost)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-t.done:
		return t.v
	case <-late:
		return Sample{}
	}
}

// begin takes a sample in the background, one at a time.
func (s *sampler) begin() *taking {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taking != nil {
		return s.taking
	}
	t := &taking{begun: time.Now(), done: make(chan struct{}), v: s.now}
	s.taking = t
	if !s.beside.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
		defer cancel()
		defer close(t.done)
		var err error
		v := t.v
		func() {
			defer s.beside.caught(&err)
			v = s.read(ctx, v)
		}()
		if t.v = v; err != nil {
			t.v = v.unread(err)
			t.v.At = time.Now()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now, s.taking = t.v, nil
	}) {
		s.taking = nil
		t.v = t.v.unread(errStopping())
		t.v.At = time.Now()
		close(t.done)
	}
	return t
}

// read rereads all parts. Each may fail alone; a server that does not answer is asked once.
func (s *sampler) read(ctx context.Context, v Sample) Sample {
	begun := time.Now()
	before := v.Stats
	ctx = view.Promising(redact.Into(ctx, s.o.Redact), s.o.Within) // for every visitor
	// Without daemons, no other process looks. It fails with read-only rights, and nothing waits
	// for it.
	s.beside.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, sampleTimeout/2)
		defer cancel()
		var err error // the sample does without ages
		defer s.beside.caught(&err)
		_, err = s.o.Store.LookAtAges(ctx)
	})
	snap, err := view.Snap(ctx, s.o.Store)
	if v.Err = nil; rdb.Unreachable(err) {
		v.At, v.Took = time.Now(), time.Since(begun)
		return v.unread(err)
	}
	v.take(snap, err, s.o.HideArgs)
	if snap != nil {
		s.trends.Add(snap)
	}
	over := snap.Over(s.o.Store) // the large lists are read once
	stats, err := view.ReadStats(ctx, over, longstore.New(s.o.Store.Redis()))
	if stats != nil && before.OK {
		stats.Measure(before.Data)
	}
	v.Stats.TakeSome(stats, stats != nil, err)
	if time.Since(v.Totals.At) >= totalsEvery {
		v.Totals.Take(view.Totals(ctx, s.o.Store))
		v.Limits.Take(s.readLimits(ctx))
		v.Long.Take(longstore.New(s.o.Store.Redis()).Statuses(ctx, countedRuns))
		if v.Totals.Err == nil && snap != nil {
			s.trends.AddRuns(v.Totals.At, runsByQueue(v.Totals.Data))
		}
	}
	v.Ends.Take(v.Ends.Data.further(ctx, over))
	if time.Since(v.Findings.At) >= checkEvery || v.Findings.Err != nil {
		v.Server.Take(s.o.Store.Server(ctx))
		if s.o.HideArgs { // they name keys of locks
			ctx = redact.Into(ctx, redact.All())
		}
		v.Findings.Take(view.Findings(ctx, s.o.Store, snap, s.o.Checks))
	}
	v.At, v.Took = time.Now(), time.Since(begun)
	if v.Stats.Err == nil && v.Stats.Data.Known("processed", "failed", "running", "threads", "waiting") {
		t := v.Stats.Data
		points := append(v.Points, Point{At: v.At, Processed: t.Processed, Failed: t.Failed, Busy: int(t.Running), Threads: t.Threads, Waiting: t.Waiting})
		if len(points) > 2*kept {
			points = append([]Point{}, points[len(points)-kept:]...)
		}
		v.Points = points
	}
	return v
}

func runsByQueue(totals []view.Total) map[string]int64 {
	runs := map[string]int64{}
	for _, t := range totals {
		if t.Kind == history.Queue {
			runs[t.Name.Name] = int64(min(t.Runs, 1<<53))
		}
	}
	return runs
}
