package longjob

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/resqued/resqued/internal/longstore"
)

// Runner gives the function of a class its units, its steps and the state of the run, during
// one slice. Its methods must not be called concurrently.
type Runner struct {
	store   *longstore.Store
	slice   longstore.Slice
	class   string
	o       Options
	ctx     context.Context //nolint:containedctx // of the slice: what has no context of its own asks it
	cancel  context.CancelCauseFunc
	leaving <-chan struct{}
	pausing chan struct{} // closed when the run is paused

	pauseOnce sync.Once
	locks     map[string]bool // locks of the critical units in progress

	saving sync.Mutex // held during a save
	mu     sync.Mutex // guards all fields below

	state map[string]string // of the run, as JSON
	dirty map[string]bool   // keys that differ from the saved state
	size  int               // of state in bytes

	layers []map[string]*string // set by the units in progress; nil = cleared

	began     time.Time
	ranBefore time.Duration
	units     int64
	unitTime  time.Duration
	tried     int // units and attempts of this slice; of nested ones the innermost
	ended     int // units that succeeded, including nested ones
	failures  int
	progress  bool
	message   string
	warning   string
	steps     []Step
	scope     string          // of the unit in progress; "" = none, or not of a step
	spent     map[string]bool // keys of the finished steps of that scope
	touched   map[string]bool // steps that this slice has used; nil = unknown
	top       string          // the step in progress that is not within another
	ticked    time.Time       // until when its time is counted
	savedAt   time.Time
	news      bool // a command has reported progress that is not saved

	yielded bool
	stopped error

	every []every
	atEnd []func(ctx context.Context) error
}

type every struct {
	n  int
	fn func(ctx context.Context) error
}

func newRunner(s *longstore.Store, slice longstore.Slice, class string, o Options, record longstore.Record) *Runner {
	r := &Runner{
		store: s, slice: slice, class: class, o: o, ctx: context.Background(), cancel: func(error) {}, pausing: make(chan struct{}),
		state: record.State, dirty: map[string]bool{}, locks: map[string]bool{}, touched: map[string]bool{}, spent: map[string]bool{}, began: time.Now(), savedAt: time.Now(),
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

// UUID returns the id of the run.
func (r *Runner) UUID() string { return r.slice.UUID }

// Slice returns the number of this slice, from 1 on. A slice that was interrupted runs again
// with the same number.
func (r *Runner) Slice() int { return int(r.slice.Number) }

// Fence returns the fencing token of this slice, which is larger for each later slice of the
// run. Store it with what the slice writes elsewhere, and refuse a write with a smaller one.
func (r *Runner) Fence() int64 { return r.slice.Fence }

// Message sets the text that "resqued longjobs" shows for the run. It is saved with the next save.
func (r *Runner) Message(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.message = cut(text)
}

// AtSliceEnd registers a function that is called at the end of each slice, including the last,
// before the state is saved. It is not called if the run was cancelled or the slice was taken
// over. If it returns an error, the run has failed.
func (r *Runner) AtSliceEnd(fn func(ctx context.Context) error) { r.atEnd = append(r.atEnd, fn) }

// EveryUnits registers a function that is called after every n units of the run. Its error is
// the error of the unit.
func (r *Runner) EveryUnits(n int, fn func(ctx context.Context) error) {
	r.every = append(r.every, every{max(n, 1), fn})
}

func (r *Runner) warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warning = text
}

// Continue returns nil if another unit may begin in this slice. Otherwise it returns the error
// that the function must return. WorkUnit, WorkOnce, WorkEach and the other steps call it.
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
	case <-r.pausing:
		over = true
	default:
	}
	if over {
		r.yielded = true
		return ErrYield
	}
	return nil
}

// WorkUnit runs fn as a unit. If the slice is over, it does not run fn and returns ErrYield,
// which the function must return. Changes of the state by fn are kept if fn returns nil.
//
// The run does not remember that the unit is done: when the function runs from its beginning in
// the next slice, it has to find out by itself. WorkOnce and WorkEach do that for it.
func (r *Runner) WorkUnit(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := r.Continue(ctx); err != nil {
		return err
	}
	return r.unit(ctx, fn, nil)
}

// unit runs fn in a layer of its own. If fn returns nil, the layer becomes part of the state,
// together with the change that done returns, and the state is saved. done is called with r.mu
// held.
func (r *Runner) unit(ctx context.Context, fn func(ctx context.Context) error, done func() (*change, error)) error {
	layer := map[string]*string{}
	r.mu.Lock()
	r.layers = append(r.layers, layer)
	depth, ended, tried := len(r.layers), r.ended, r.tried
	r.mu.Unlock()
	began := time.Now()
	err := func() error {
		// Also when fn panics: deferred functions may still set something.
		defer func() {
			r.mu.Lock()
			r.layers = r.layers[:depth-1]
			if r.tried == tried { // else the nested ones count
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

// settle adds the changes of a unit to the state. leaf means that no unit has ended within it.
func (r *Runner) settle(layer map[string]*string, ended int, took time.Duration, done func() (*change, error)) (leaf bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.yielded {
		// The unit swallowed the end of the slice, so it is not known whether it is done.
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
		r.progress, r.failures = true, 0 // a new state
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
