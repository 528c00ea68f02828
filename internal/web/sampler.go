package web

import (
	"context"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

const (
	// looked is for how long after a request somebody is taken to look; sampleEvery how often is
	// sampled then, restEvery otherwise.
	looked      = 15 * time.Second
	sampleEvery = 2 * time.Second
	restEvery   = 30 * time.Second
	// modest: a sample pauses for so many times as long as it took, so that it never takes more
	// than 2 % of Redis's time.
	modest = 50
	// checkEvery is how often is checked what `resqued doctor` checks.
	checkEvery = 15 * time.Second
	// sampleTimeout bounds a sample.
	sampleTimeout = 20 * time.Second
	// kept is how many samples charts can show: half an hour of looking.
	kept = 900
)

// Part is what was read of one thing: the last that could be read, when that was, and why the
// newest could not.
type Part[T any] struct {
	Data T
	// OK: there is data, of the time At.
	OK bool
	At time.Time
	// Err is why it could not be read last; nil = it could.
	Err error
}

func (p *Part[T]) read(data T, err error) {
	p.Err = err
	if err == nil {
		p.Data, p.OK, p.At = data, true, time.Now()
	}
}

// Point is what charts are made of.
type Point struct {
	At        time.Time `json:"at"`
	Processed int64     `json:"processed"`
	Failed    int64     `json:"failed"`
	Busy      int       `json:"busy"`
	Threads   int       `json:"threads"`
	Waiting   int64     `json:"waiting"`
}

// Sample is what the server has seen last. What it holds is not changed any more.
type Sample struct {
	Snap     Part[*view.Snapshot]
	Stats    Part[*view.Stats]
	Server   Part[rdb.Server]
	Findings Part[[]view.Finding]
	// Totals is what the history has counted since its beginning.
	Totals Part[[]view.Total]
	// Points are earlier samples, the oldest first.
	Points []Point
	// At is when it was taken, Took how long that has taken.
	At   time.Time
	Took time.Duration
}

type sampler struct {
	o Options
	// trends is what the samples have in common, for charts.
	trends *pages.Trends

	mu     sync.Mutex
	now    Sample
	seen   time.Time // when somebody asked last
	asked  chan struct{}
	taking sync.Mutex // one sample at a time
	// outdated is when something was changed here: see outdate.
	outdated time.Time
}

func newSampler(o Options) *sampler {
	return &sampler{o: o, trends: pages.NewTrends(), asked: make(chan struct{}, 1)}
}

// sample returns the last sample, and takes the first one if there is none. Somebody looks.
func (s *sampler) sample(ctx context.Context) Sample {
	s.mu.Lock()
	resting := time.Since(s.seen) > looked
	s.seen = time.Now()
	now := s.now
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
	// Nothing runs the sampler: a handler that is mounted elsewhere, or a first request.
	return s.take(ctx)
}

func (s *sampler) run(ctx context.Context) {
	for ctx.Err() == nil {
		took := s.take(ctx).Took
		s.mu.Lock()
		pause := restEvery
		if time.Since(s.seen) <= looked {
			pause = sampleEvery
		}
		s.mu.Unlock()
		least := time.NewTimer(max(min(modest*took, time.Minute), sampleEvery))
		most := time.NewTimer(max(pause, modest*took))
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				waiting = false
			case <-most.C:
				waiting = false
			case <-s.asked: // not before it may
				select {
				case <-ctx.Done():
				case <-least.C:
				}
				waiting = false
			}
		}
		least.Stop()
		most.Stop()
	}
}

// take takes a sample. Each part fails by itself.
func (s *sampler) take(ctx context.Context) Sample {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sampleTimeout)
	defer cancel()
	s.taking.Lock()
	defer s.taking.Unlock()
	s.mu.Lock()
	if time.Since(s.now.At) < sampleEvery/4 && s.current(s.now) { // another request has just taken one
		defer s.mu.Unlock()
		return s.now
	}
	v := s.now
	s.mu.Unlock()
	begun := time.Now()
	before := v.Stats
	v.Snap.read(view.Snap(ctx, s.o.Store))
	if v.Snap.Err == nil {
		s.trends.Add(v.Snap.Data)
	}
	// The large lists are read once.
	var read *view.Snapshot
	if v.Snap.Err == nil {
		read = v.Snap.Data
	}
	over := read.Over(s.o.Store)
	stats, err := view.ReadStats(ctx, over, longstore.New(s.o.Store.Redis()))
	if err == nil && before.OK {
		stats.Measure(before.Data)
	}
	v.Stats.read(stats, err)
	if time.Since(v.Totals.At) >= totalsEvery {
		v.Totals.read(view.Totals(ctx, s.o.Store))
		if v.Totals.Err == nil && v.Snap.Err == nil {
			s.trends.AddRuns(v.Totals.At, runsByQueue(v.Totals.Data))
		}
	}
	if time.Since(v.Findings.At) >= checkEvery || v.Findings.Err != nil {
		v.Server.read(s.o.Store.Server(ctx))
		v.Findings.read(view.Findings(ctx, over, s.o.Checks))
	}
	v.At, v.Took = time.Now(), time.Since(begun)
	if v.Stats.Err == nil {
		t := v.Stats.Data
		points := append(v.Points, Point{At: v.At, Processed: t.Processed, Failed: t.Failed, Busy: int(t.Running), Threads: t.Threads, Waiting: t.Waiting})
		if len(points) > 2*kept {
			points = append([]Point{}, points[len(points)-kept:]...)
		}
		v.Points = points
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = v
	return v
}

// runsByQueue returns how many jobs of each queue have run.
func runsByQueue(totals []view.Total) map[string]int64 {
	runs := map[string]int64{}
	for _, t := range totals {
		if t.Kind == history.Queue {
			runs[t.Name.Name] = int64(min(t.Runs, 1<<53))
		}
	}
	return runs
}
