package longjob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// place is how far a step has come.
type place struct {
	// N is how many of its items are done, Last what the last one was.
	N    int64  `json:"n,omitempty"`
	Last string `json:"last,omitempty"`
	// Value is the last item itself, where the step needs it to go on.
	Value json.RawMessage `json:"value,omitempty"`
	Done  bool            `json:"done,omitempty"`
}

// scopeKey carries where in the tree of steps a context is, so that a step within a step
// has a name of its own for each item of the outer one.
type scopeKey struct{}

func scope(ctx context.Context) string {
	s, _ := ctx.Value(scopeKey{}).(string)
	return s
}

func within(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, scopeKey{}, name+"/")
}

// step is one WorkOnce, WorkEach or WorkTree that is under way.
type step struct {
	r     *Runner
	name  string
	top   bool
	place place
}

func (r *Runner) step(ctx context.Context, key string) (*step, error) {
	s := &step{r: r, name: scope(ctx) + key, top: scope(ctx) == ""}
	if text, ok := r.look(stateStep + s.name); ok {
		if err := json.Unmarshal([]byte(text), &s.place); err != nil {
			return nil, fmt.Errorf("longjob: what is saved of step %q: %w", key, err)
		}
	}
	return s, nil
}

// mark notes that a part of the step is done, and forgets the steps within it; r.mu is held.
func (s *step) mark(inner string, total int64) error {
	text, err := json.Marshal(s.place)
	if err != nil {
		return fmt.Errorf("longjob: step %q: %w", s.name, err)
	}
	r := s.r
	for key := range r.state {
		if strings.HasPrefix(key, stateStep+inner+"/") {
			r.put(key, nil)
		}
	}
	value := string(text)
	r.put(stateStep+s.name, &value)
	r.progress, r.failures = true, 0
	s.show(total)
	return nil
}

// enter shows a step that is about to go on; what it takes from now on is its own time.
func (s *step) enter(total int64) {
	if !s.top {
		return
	}
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick()
	r.top, r.ticked = s.name, time.Now()
	st := r.shown(s.name)
	st.Done, st.Total = s.place.N, total
}

// show notes the progress of a step that is not within another; r.mu is held.
func (s *step) show(total int64) {
	if !s.top {
		return
	}
	r := s.r
	r.tick()
	st := r.shown(s.name)
	st.Done, st.Total, st.Finished = s.place.N, total, s.place.Done
	st.Milliseconds, st.Item = st.Milliseconds+st.Item, 0
	if st.Finished && r.top == s.name {
		r.top = ""
	}
}

// shown is the progress of a step; r.mu is held.
func (r *Runner) shown(name string) *Step {
	i := slices.IndexFunc(r.steps, func(st Step) bool { return st.Name == name })
	if i < 0 {
		// Of very many steps only the last ones are shown; those before need not be kept.
		if len(r.steps) >= 2*maxSteps {
			r.steps = slices.Clone(r.steps[len(r.steps)-maxSteps:])
		}
		i = len(r.steps)
		r.steps = append(r.steps, Step{Name: name})
	}
	return &r.steps[i]
}

// tick adds the time since the last look to the step that is under way: one whose items
// take many slices would else know only what their last one has taken. r.mu is held.
func (r *Runner) tick() {
	if r.top == "" {
		return
	}
	took := time.Since(r.ticked).Milliseconds()
	r.shown(r.top).Item += took
	r.ticked = r.ticked.Add(time.Duration(took) * time.Millisecond)
}

// WorkOnce runs fn as a unit, once per run: in later slices it does nothing.
func (r *Runner) WorkOnce(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	s.enter(1)
	if err := r.Continue(ctx); err != nil {
		return err
	}
	return r.unit(ctx, func(ctx context.Context) error { return fn(within(ctx, s.name)) }, func() error {
		s.place.Done, s.place.N = true, 1
		return s.mark(s.name, 1)
	})
}

// WorkEach runs fn for each item, each as a unit. A later slice goes on behind the last item
// that is done, wherever that stands by then; if it is not there any more, behind as many
// items as are done. Items must encode to JSON. The list may change between two slices, but
// what is put before that item is not worked.
func WorkEach[T any](ctx context.Context, r *Runner, key string, items []T, fn func(ctx context.Context, item T) error) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	from, err := s.resume(len(items), func(i int) (string, error) { return fingerprint(items[i]) })
	if err != nil {
		return err
	}
	s.enter(int64(len(items)))
	for _, item := range items[from:] {
		if err := eachItem(ctx, s, item, int64(len(items)), false, fn); err != nil {
			return err
		}
	}
	return s.complete(ctx, int64(len(items)))
}

// resume returns the index of the first item that is to be done.
func (s *step) resume(n int, print func(i int) (string, error)) (int, error) {
	if s.place.N == 0 {
		return 0, nil
	}
	matches := func(i int) (bool, error) {
		p, err := print(i)
		return p == s.place.Last, err
	}
	at := int(min(s.place.N, int64(n)))
	if at > 0 {
		if same, err := matches(at - 1); same || err != nil {
			return at, err
		}
	}
	for i := range n {
		if same, err := matches(i); same || err != nil {
			return i + 1, err
		}
	}
	return at, nil
}

// WorkSeq is WorkEach for an iterator. It must yield the same items in the same order in
// each slice: as many as are done are passed over. total, if it is known, is for the
// progress; 0 = unknown.
func WorkSeq[T any](ctx context.Context, r *Runner, key string, total int64, seq iter.Seq[T], fn func(ctx context.Context, item T) error) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	s.enter(total)
	skip := s.place.N
	for item := range seq {
		if skip > 0 {
			skip--
			continue
		}
		if err := eachItem(ctx, s, item, total, false, fn); err != nil {
			return err
		}
	}
	return s.complete(ctx, total)
}

// WorkChan is WorkEach for a channel, until it is closed. Each slice has to send all items
// in the same order: as many as are done are passed over.
func WorkChan[T any](ctx context.Context, r *Runner, key string, total int64, items <-chan T, fn func(ctx context.Context, item T) error) error {
	return WorkSeq(ctx, r, key, total, func(yield func(T) bool) {
		for {
			select {
			case item, ok := <-items:
				if !ok || !yield(item) {
					return
				}
			case <-ctx.Done():
				// The next unit tells why; without one the step must not look complete.
				var none T
				yield(none)
				return
			}
		}
	}, fn)
}

// WorkAfter is WorkEach for what can be read from any point on, such as the rows of a table
// by their key. next gets the last item that is done, nil at first, and yields those behind
// it; an error that it yields ends the step. This is the way for very many items: what is
// done is not read again.
func WorkAfter[T any](ctx context.Context, r *Runner, key string, total int64,
	next func(ctx context.Context, after *T) iter.Seq2[T, error], fn func(ctx context.Context, item T) error,
) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	var after *T
	if s.place.N > 0 {
		after = new(T)
		if err := json.Unmarshal(s.place.Value, after); err != nil {
			return fmt.Errorf("longjob: the last item of step %q: %w", key, err)
		}
	}
	s.enter(total)
	for item, err := range next(ctx, after) {
		if err != nil {
			return err
		}
		if err := eachItem(ctx, s, item, total, true, fn); err != nil {
			return err
		}
	}
	return s.complete(ctx, total)
}

// eachItem works one item. whole: all of it is remembered.
func eachItem[T any](ctx context.Context, s *step, item T, total int64, whole bool, fn func(ctx context.Context, item T) error) error {
	if err := s.r.Continue(ctx); err != nil {
		return err
	}
	text, err := json.Marshal(item)
	if err != nil {
		return fmt.Errorf("longjob: an item of step %q: %w", s.name, err)
	}
	inner := fmt.Sprintf("%s#%d", s.name, s.place.N)
	return s.r.unit(ctx, func(ctx context.Context) error { return fn(within(ctx, inner), item) }, func() error {
		s.place.N++
		if whole {
			s.place.Value = text
		} else {
			s.place.Last = hash(text)
		}
		return s.mark(inner, total)
	})
}

// complete ends a step all of whose items are done.
func (s *step) complete(ctx context.Context, total int64) error {
	// The end of a slice during the last item, or a source that has ended with its
	// context, must not look like the end of the items.
	s.r.mu.Lock()
	err := s.r.stopped
	switch {
	case err != nil:
	case s.r.yielded:
		err = ErrYield
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		s.place = place{N: s.place.N, Done: true}
		err = s.mark(s.name, max(total, s.place.N))
	}
	s.r.mu.Unlock()
	if err != nil {
		return err
	}
	return s.r.commit(ctx)
}

func fingerprint(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("longjob: an item: %w", err)
	}
	return hash(text), nil
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
