package longjob

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// place is how far a step has come. It is saved as JSON.
type place struct {
	// N is how many items this run has done, Last the hash of the last one.
	N    int64  `json:"n,omitempty"`
	Last string `json:"last,omitempty"`
	// Value is the last item itself, for steps that need it to continue.
	Value json.RawMessage `json:"value,omitempty"`
	Done  bool            `json:"done,omitempty"`
	// Front is how many items at the front of the list are done, Sum their checksum, and Of the
	// length of the list.
	Front int64  `json:"front,omitempty"`
	Sum   string `json:"sum,omitempty"`
	Of    int64  `json:"of,omitempty"`
	// Each means that done items are remembered one by one, in Parts parts of the state.
	Each  bool `json:"each,omitempty"`
	Parts int  `json:"parts,omitempty"`
}

// scopeKey carries the position of a context in the tree of steps. With it, a step within a
// step has a name of its own for each item of the outer one.
type scopeKey struct{}

// scopeEnd separates the name of an outer step from that of an inner one. Names of programs
// cannot contain it, so step "a/b" differs from step "b" within step "a".
const scopeEnd = "\x00"

func scope(ctx context.Context) string {
	s, _ := ctx.Value(scopeKey{}).(string)
	return s
}

// within returns fn as the function of a unit whose steps are within the step name.
func (r *Runner) within(name string, fn func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		r.mu.Lock()
		scope, spent := r.scope, r.spent
		r.scope, r.spent = name+scopeEnd, map[string]bool{}
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			r.scope, r.spent = scope, spent
			r.mu.Unlock()
		}()
		return fn(context.WithValue(ctx, scopeKey{}, name+scopeEnd))
	}
}

// step is one WorkOnce, WorkEach or WorkTree in progress.
type step struct {
	r     *Runner
	key   string // as the program names it
	name  string // with the names of the steps around it
	top   bool
	place place
}

func (r *Runner) step(ctx context.Context, key string) (*step, error) {
	if strings.Contains(key, scopeEnd) {
		return nil, fmt.Errorf("longjob: the name of step %q has a zero byte", key)
	}
	s := &step{r: r, key: key, name: scope(ctx) + key, top: scope(ctx) == ""}
	r.mu.Lock()
	scoped, spent := r.scope == scope(ctx), r.spent[key]
	if s.top {
		r.touched[key] = true
	}
	r.mu.Unlock()
	switch { // otherwise it would skip what another step has done
	case !scoped:
		return nil, fmt.Errorf("%w: step %q is called with a context from outside of its unit: pass the context that the function of the unit gets", ErrFinal, key)
	case spent:
		return nil, fmt.Errorf("%w: step %q was used before: each step of a function, or of a unit, needs a key of its own", ErrFinal, key)
	}
	if text, ok := r.look(stateStep + s.name); ok {
		if err := json.Unmarshal([]byte(text), &s.place); err != nil {
			return nil, fmt.Errorf("longjob: what is saved of step %q: %w", key, err)
		}
	}
	if s.place.Done {
		r.mu.Lock()
		r.spent[key] = true
		r.mu.Unlock()
	}
	return s, nil
}

// mark returns the changes of the state after a part of the step: its place, further changes,
// and the removal of the steps within that part. r.mu must be held.
func (s *step) mark(inner string, total int64, further map[string]*string) (*change, error) {
	text, err := json.Marshal(s.place)
	if err != nil {
		return nil, fmt.Errorf("longjob: step %q: %w", s.key, err)
	}
	value := string(text)
	set := map[string]*string{stateStep + s.name: &value}
	for key := range s.r.state {
		if strings.HasPrefix(key, stateStep+inner+scopeEnd) || strings.HasPrefix(key, stateItems+inner+scopeEnd) {
			set[key] = nil
		}
	}
	maps.Copy(set, further)
	return &change{set: set, kept: func() {
		s.r.progress, s.r.failures = true, 0
		if s.place.Done {
			s.r.spent[s.key] = true
		}
		s.show(total)
	}}, nil
}

// enter shows a step that is about to continue. Time counts as its own from now on. A total of
// 0 keeps the known one.
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
	st.Done = s.place.N
	if total > 0 {
		st.Total = total
	}
}

// show notes the progress of a step that is not within another. r.mu must be held.
func (s *step) show(total int64) {
	if !s.top {
		return
	}
	r := s.r
	r.tick()
	st := r.shown(s.name)
	st.Done, st.Total, st.Finished = s.place.N, total, s.place.Done
	st.Milliseconds, st.ItemMilliseconds = st.Milliseconds+st.ItemMilliseconds, 0
	if st.Finished && r.top == s.name {
		r.top = ""
	}
}

// shown returns the progress of a step, to be changed. r.mu must be held.
func (r *Runner) shown(name string) *Step {
	i := slices.IndexFunc(r.steps, func(st Step) bool { return st.Name == name })
	if i < 0 {
		// Only the last of very many steps are shown; earlier ones need not be kept.
		if len(r.steps) >= 2*maxSteps {
			r.steps = slices.Clone(r.steps[len(r.steps)-maxSteps:])
		}
		i = len(r.steps)
		r.steps = append(r.steps, Step{Name: name})
	}
	return &r.steps[i]
}

// tick adds the time since the last tick to the step in progress. Without it, an item of many
// slices would count only its last one. r.mu must be held.
func (r *Runner) tick() {
	if r.top == "" {
		return
	}
	took := time.Since(r.ticked).Milliseconds()
	r.shown(r.top).ItemMilliseconds += took
	r.ticked = r.ticked.Add(time.Duration(took) * time.Millisecond)
}

// WorkOnce is the step key: it runs fn as a unit, once per run. In later slices it does
// nothing. Steps of a function must have different keys, and steps within a unit must get the
// context of the unit. Otherwise the run fails.
func (r *Runner) WorkOnce(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	s.enter(1)
	if err := r.Continue(ctx); err != nil {
		return err
	}
	return r.unit(ctx, s.r.within(s.name, fn), func() (*change, error) {
		s.place.Done, s.place.N = true, 1
		return s.mark(s.name, 1, nil)
	})
}

// item runs fn for the item of the step with the fingerprint print. done notes in the place of
// the step that the item is done, and returns what else to save with that.
func (s *step) item(ctx context.Context, print mark64, total int64, fn func(ctx context.Context) error, done func() map[string]*string) error {
	if err := s.r.Continue(ctx); err != nil {
		return err
	}
	inner := s.name + scopeEnd + print.String()
	return s.r.unit(ctx, s.r.within(inner, fn), func() (*change, error) {
		s.place.N++
		s.place.Last = print.String()
		return s.mark(inner, total, done())
	})
}

// complete ends a step all of whose items are done.
func (s *step) complete(ctx context.Context, total int64) error {
	// The end of a slice during the last item, or a source that has ended with its context,
	// must not look like the end of the items.
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
		var c *change
		if c, err = s.mark(s.name, max(total, s.place.N), nil); err == nil {
			err = s.r.keep(c)
		}
	}
	s.r.mu.Unlock()
	if err != nil {
		return err
	}
	return s.r.commit(ctx)
}

// mark64 is the fingerprint of an item's JSON.
type mark64 uint64

// String returns the form that places and names of steps contain.
func (m mark64) String() string { return fmt.Sprintf("%016x", uint64(m)) }

func fingerprint(v any) (mark64, []byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return 0, nil, fmt.Errorf("longjob: an item: %w", err)
	}
	sum := sha256.Sum256(text)
	return mark64(binary.BigEndian.Uint64(sum[:])), text, nil
}

type checksum [16]byte

func (c *checksum) add(m mark64) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(c[:len(c):len(c)], uint64(m)))
	copy(c[:], sum[:])
}

func (c *checksum) String() string { return hex.EncodeToString(c[:]) }
