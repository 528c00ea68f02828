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
	// sampleWait is how long a request waits for a newer sample before it shows the last one, firstWait
	// how long it waits for the first.
	sampleWait, firstWait = time.Second, 4 * time.Second
	// countedRuns is how many long jobs are counted by status, the newest.
	countedRuns = 10_000
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
	// Err is why it could not be read last; nil = it could. Lacks is why something is missing in
	// Data; nil = nothing is.
	Err, Lacks error
}

func (p *Part[T]) read(data T, err error) { p.readSome(data, err == nil, err) }

// readSome is read for what may be there in part: some reports whether there is any data beside the
// error.
func (p *Part[T]) readSome(data T, some bool, err error) {
	if !some {
		p.Err = err
		return
	}
	*p = Part[T]{Data: data, OK: true, At: time.Now(), Lacks: err}
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
	Queues  Part[[]*view.Queue]
	Workers Part[[]*view.Worker]
	Jobs    Part[[]*view.Job]
	// Hidden has the workers and jobs as those see them who see no arguments, if there are such.
	Hidden *view.Snapshot
	// Snap is the last snapshot, of which those are; what is not in it may be older.
	Snap *view.Snapshot
	// Err says why Redis has not answered; nil = it has.
	Err      error
	Stats    Part[*view.Stats]
	Server   Part[rdb.Server]
	Findings Part[[]view.Finding]
	// Totals is what the history has counted since its beginning.
	Totals Part[[]view.Total]
	// Long is how many long jobs there are by status.
	Long Part[longstore.Statuses]
	// Ends are the ends of processes since this server has begun to look.
	Ends Part[Ends]
	// Points are earlier samples, the oldest first.
	Points []Point
	// At is when it was taken, Took how long that has taken.
	At   time.Time
	Took time.Duration
	// late: a newer one is being taken for too long.
	late bool
}

// rest is for how many times as long as a sample took Redis is left alone. A server that answered
// nothing, or that is on its way up, has mostly waited, and visitors want to see that it is back.
func (v Sample) rest(times time.Duration) time.Duration {
	parts := []error{v.Queues.Err, v.Workers.Err, v.Jobs.Err}
	if !slices.Contains(parts, nil) || slices.ContainsFunc(parts, rdb.Waitable) {
		return 0
	}
	return times * v.Took
}

// unread gives all parts that could be read a reason why they could not be read just now.
func (v Sample) unread(err error) Sample {
	v.Err = cmp.Or(v.Err, err)
	for _, e := range []*error{&v.Queues.Err, &v.Workers.Err, &v.Jobs.Err, &v.Stats.Err, &v.Server.Err, &v.Findings.Err, &v.Totals.Err, &v.Long.Err, &v.Ends.Err} {
		if *e == nil {
			*e = err
		}
	}
	return v
}

// take takes over the parts of a snapshot; nil = err is why there is none.
func (v *Sample) take(snap *view.Snapshot, err error, hide bool) {
	if snap == nil {
		v.Queues.Err, v.Workers.Err, v.Jobs.Err = err, err, err
		return
	}
	v.Snap = snap
	v.Queues.readSome(snap.Queues, snap.Queues != nil, snap.Unread.Queues)
	v.Workers.readSome(snap.Workers, snap.Workers != nil, snap.Unread.Workers)
	v.Jobs.readSome(snap.Jobs, snap.Jobs != nil, snap.Unread.Jobs)
	if hide { // parts that could not be read now stay as they were here, too
		hidden := view.Snapshot{Workers: v.Workers.Data, Jobs: v.Jobs.Data}
		v.Hidden = hidden.Redacted(redact.All())
	}
}

type sampler struct {
	o      Options
	beside *beside
	// trends is what the samples have in common, for charts.
	trends *pages.Trends

	mu     sync.Mutex
	now    Sample
	seen   time.Time // when somebody asked last
	asked  chan struct{}
	taking *taking // the sample that is being taken, if one is
	// outdated is when something was changed here: see outdate.
	outdated time.Time
}

// taking is a sample that is being taken. V is there when done is closed.
type taking struct {
	begun time.Time
	done  chan struct{}
	v     Sample
}

func newSampler(o Options, b *beside) *sampler {
	return &sampler{o: o, beside: b, trends: pages.NewTrends(), asked: make(chan struct{}, 1)}
}

// sample returns the last sample, and takes the first one if there is none. Somebody looks.
func (s *sampler) sample(ctx context.Context) Sample { return s.shown(ctx, s.last()) }

// shown returns a sample as the one sees it for whom ctx is.
func (s *sampler) shown(ctx context.Context, v Sample) Sample {
	if v.Hidden != nil && visitorIn(ctx).Role < Operator {
		v.Workers.Data, v.Jobs.Data = v.Hidden.Workers, v.Hidden.Jobs
	}
	return v
}

// last returns the last sample.
func (s *sampler) last() Sample {
	s.mu.Lock()
	resting := time.Since(s.seen) > looked
	s.seen = time.Now()
	now := s.now
	// One that hangs is not waited for by each request.
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
	// Nothing runs the sampler: a handler that is mounted elsewhere, or a first request.
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

// take returns a sample that was begun since the last act, or the last one if that lasts too long:
// a Redis that hangs holds up no page.
func (s *sampler) take() Sample {
	s.mu.Lock()
	wait := sampleWait
	if s.now.At.IsZero() {
		wait = firstWait
	}
	s.mu.Unlock()
	for until := time.Now().Add(wait); ; {
		s.mu.Lock()
		now := s.now
		newer := time.Since(now.At) < sampleEvery/4 && s.current(now) // another request has just taken one
		s.mu.Unlock()
		if newer {
			return now
		}
		left := time.Until(until)
		if left <= 0 {
			return now.unread(errNotYet)
		}
		if v := s.await(s.begin(), left); !v.At.IsZero() && s.since(v) {
			return v
		}
	}
}

// since is current for who does not hold the mutex.
func (s *sampler) since(v Sample) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current(v)
}

// await returns a sample when it has been taken, or a zero one after a while; 0 = it waits.
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

// begin takes a sample beside, one at a time, whoever goes on waiting for it.
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

// read reads all parts anew. Each fails by itself; a server that does not answer is asked once.
func (s *sampler) read(ctx context.Context, v Sample) Sample {
	begun := time.Now()
	before := v.Stats
	ctx = view.Promising(view.Redacting(ctx, s.o.Redact), s.o.Within) // for every visitor
	// Where no daemon works no other process looks. A user who may only read goes without. The sample does not
	// wait for it.
	s.beside.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, sampleTimeout/2)
		defer cancel()
		var err error // without ages the rest goes on
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
	v.Stats.readSome(stats, stats != nil, err)
	if time.Since(v.Totals.At) >= totalsEvery {
		v.Totals.read(view.Totals(ctx, s.o.Store))
		v.Long.read(longstore.New(s.o.Store.Redis()).Statuses(ctx, countedRuns))
		if v.Totals.Err == nil && snap != nil {
			s.trends.AddRuns(v.Totals.At, runsByQueue(v.Totals.Data))
		}
	}
	v.Ends.read(v.Ends.Data.further(ctx, over))
	if time.Since(v.Findings.At) >= checkEvery || v.Findings.Err != nil {
		v.Server.read(s.o.Store.Server(ctx))
		if s.o.HideArgs { // the keys of locks are among them
			ctx = view.Redacting(ctx, redact.All())
		}
		v.Findings.read(view.Findings(ctx, over, s.o.Checks))
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
