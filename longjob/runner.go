package longjob

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/longstore"
)

// Runner is what the function of a class works with during one slice. Its units come one
// after the other: a Runner is not for several goroutines at once.
type Runner struct {
	store   *longstore.Store
	slice   longstore.LongSlice
	class   string
	o       Options
	ctx     context.Context //nolint:containedctx // of the slice: what has no context of its own asks it
	cancel  context.CancelCauseFunc
	leaving <-chan struct{}
	locks   map[string]bool // of the critical units that are under way

	saving sync.Mutex // held during a save
	mu     sync.Mutex // guards all below

	state map[string]string // what the run remembers, as JSON
	dirty map[string]bool   // keys that differ from what is saved
	size  int               // bytes of state

	layers []map[string]*string // what the units that are under way have set; nil = cleared

	began     time.Time
	ranBefore time.Duration
	units     int64
	unitTime  time.Duration
	tried     int // units and attempts of this slice, of nested ones the innermost
	ended     int // units that have ended well, nested ones too
	failures  int
	progress  bool
	message   string
	warning   string
	steps     []Step
	touched   map[string]bool // the steps that this slice has come across; nil = that is not known
	top       string          // the step of steps that is under way
	ticked    time.Time       // until when its time is counted
	savedAt   time.Time
	news      bool // a command has told of progress that is not saved

	yielded bool
	stopped error

	every []every
	atEnd []func(ctx context.Context) error
}

type every struct {
	n  int
	fn func(ctx context.Context) error
}

func newRunner(s *longstore.Store, slice longstore.LongSlice, class string, o Options, record longstore.LongRecord) *Runner {
	r := &Runner{
		store: s, slice: slice, class: class, o: o, ctx: context.Background(), cancel: func(error) {},
		state: record.State, dirty: map[string]bool{}, locks: map[string]bool{}, touched: map[string]bool{}, began: time.Now(), savedAt: time.Now(),
		ranBefore: time.Duration(record.Number("ran")) * time.Millisecond,
		units:     record.Number("units"), unitTime: time.Duration(record.Number("unit_ms")) * time.Millisecond,
		failures: int(record.Number("failures")), message: record.Fields["message"], warning: record.Fields["warning"],
	}
	_ = json.Unmarshal([]byte(record.Fields["steps"]), &r.steps) // only for show
	for key, value := range r.state {
		r.size += len(key) + len(value)
	}
	return r
}

// UUID names the run.
func (r *Runner) UUID() string { return r.slice.UUID }

// Slice is the number of this slice, 1 for the first. One that was interrupted runs again
// under its number.
func (r *Runner) Slice() int { return int(r.slice.Slice) }

// Fence is larger for each later slice of the run. Store it with what the slice writes
// elsewhere, and refuse what comes with a smaller one.
func (r *Runner) Fence() int64 { return r.slice.Fence }

// Message sets the line that pages and "resqued longjobs" show beside the run. It is saved
// with the next save.
func (r *Runner) Message(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.message = cut(text)
}

// AtSliceEnd has fn called whenever a slice ends, the last one included, before it is
// saved; not when the slice is not wanted any more. Its error fails the run.
func (r *Runner) AtSliceEnd(fn func(ctx context.Context) error) { r.atEnd = append(r.atEnd, fn) }

// EveryUnits has fn called after every n units of the run. Its error is that of the unit.
func (r *Runner) EveryUnits(n int, fn func(ctx context.Context) error) {
	r.every = append(r.every, every{max(n, 1), fn})
}

func (r *Runner) warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warning = text
}

// Continue returns nil as long as the slice may begin another unit, else the error to
// return. WorkUnit and the others ask it by themselves.
func (r *Runner) Continue(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped != nil:
		return r.stopped
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	case r.yielded:
		return ErrYield
	}
	over := r.tried > 0 && (time.Since(r.began) >= r.o.Slice || r.o.MaxUnits > 0 && r.tried >= r.o.MaxUnits)
	select {
	case <-r.leaving:
		over = true
	default:
	}
	if over {
		r.yielded = true
		return ErrYield
	}
	return nil
}

// WorkUnit runs fn, unless the slice is over: then it returns ErrYield, and so must the
// function. What fn sets in the state counts if it returns nil.
//
// A run does not know which units are done, the function has to find out: it runs again
// from its beginning in the next slice. WorkOnce and WorkEach do that by themselves.
func (r *Runner) WorkUnit(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := r.Continue(ctx); err != nil {
		return err
	}
	return r.unit(ctx, fn, nil)
}

// unit runs fn in a layer of its own. If fn returns nil, the layer becomes part of the
// state, together with the change that done returns, r.mu held, and that is saved.
func (r *Runner) unit(ctx context.Context, fn func(ctx context.Context) error, done func() (*change, error)) error {
	layer := map[string]*string{}
	r.mu.Lock()
	r.layers = append(r.layers, layer)
	depth, ended, tried := len(r.layers), r.ended, r.tried
	r.mu.Unlock()
	began := time.Now()
	err := func() error {
		// Also when fn panics: deferred code of the function may set something yet.
		defer func() {
			r.mu.Lock()
			r.layers = r.layers[:depth-1]
			if r.tried == tried { // else those within it count
				r.tried++
			}
			r.mu.Unlock()
		}()
		return fn(ctx)
	}()
	if err != nil {
		return err
	}
	leaf, err := r.settle(layer, ended, time.Since(began), done)
	if err == nil && done != nil {
		err = r.commit(ctx)
	}
	if err != nil || !leaf {
		return err
	}
	for _, e := range r.every {
		if r.units%int64(e.n) == 0 {
			if err := e.fn(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle makes what a unit has set part of the state. leaf: no unit has ended within it.
func (r *Runner) settle(layer map[string]*string, ended int, took time.Duration, done func() (*change, error)) (leaf bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.yielded {
		// It has swallowed the end of the slice: nobody knows whether it is done.
		r.warning = swallowed
		return false, ErrYield
	}
	c := &change{set: map[string]*string{}, kept: func() {}}
	if done != nil {
		if c, err = done(); err != nil {
			return false, err
		}
	}
	maps.Copy(c.set, layer)
	fresh := len(r.dirty)
	if err := r.keep(c); err != nil {
		return false, err
	}
	if len(r.dirty) > fresh {
		r.progress, r.failures = true, 0 // a state that is a new one
	}
	for key := range layer {
		for _, outer := range r.layers {
			delete(outer, key)
		}
	}
	leaf = r.ended == ended
	r.ended++
	if leaf {
		r.units++
		r.unitTime += took
	}
	return leaf, nil
}

const swallowed = "the function went on, or returned no error, though its slice was over: return what the runner returns"
