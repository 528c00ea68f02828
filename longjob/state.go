package longjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Prefixes of the keys of the state: the program's values, the places of steps, and their done
// items.
const (
	stateOwn   = "s:"
	stateStep  = "o:"
	stateItems = "d:"
)

// State returns the value of a key in the state of the run, or def if it is not set.
func State[T any](r *Runner, key string, def T) (T, error) {
	text, ok := r.look(stateOwn + key)
	if !ok {
		return def, nil
	}
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return def, fmt.Errorf("longjob: state %q: %w", key, err)
	}
	return v, nil
}

// StateOnce returns the value of a key in the state of the run. If the key is not set,
// StateOnce computes and sets it.
func StateOnce[T any](r *Runner, key string, compute func() (T, error)) (T, error) {
	if _, ok := r.look(stateOwn + key); ok {
		var none T
		return State(r, key, none)
	}
	v, err := compute()
	if err != nil {
		return v, err
	}
	return v, SetState(r, key, v)
}

// SetState sets a key in the state of the run to a value, as JSON. A value set within a unit is
// kept if the unit returns nil, and is saved together with the step of that unit. Other values
// are saved with the next save: at the end of a slice, at a check-in, or when a unit of
// WorkOnce, WorkEach or WorkTree is done. SetState returns ErrStateLimit if the state would be
// too large.
func SetState[T any](r *Runner, key string, v T) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("longjob: state %q: %w", key, err)
	}
	value := string(text)
	return r.set(stateOwn+key, &value)
}

// ClearState removes a key from the state of the run.
func ClearState(r *Runner, key string) error { return r.set(stateOwn+key, nil) }

// look returns the value of a key as the current unit sees it.
func (r *Runner) look(key string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, layer := range slices.Backward(r.layers) {
		if v, ok := layer[key]; ok {
			if v == nil {
				return "", false
			}
			return *v, true
		}
	}
	v, ok := r.state[key]
	return v, ok
}

func (r *Runner) set(key string, value *string) error {
	return r.merge(map[string]*string{key: value})
}

// change is a change of the state that is applied as a whole or not at all.
type change struct {
	set  map[string]*string // nil = cleared
	kept func()             // called when it was applied
}

// merge sets keys, and clears keys whose value is nil. It changes nothing if the state would be
// too large.
func (r *Runner) merge(changes map[string]*string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fits(changes); err != nil {
		return err
	}
	for k, v := range changes {
		if n := len(r.layers); n > 0 {
			r.layers[n-1][k] = v
		} else {
			r.put(k, v)
		}
	}
	return nil
}

// keep applies a change to the state itself, not to the unit's layer. r.mu must be held.
func (r *Runner) keep(c *change) error {
	if err := r.fits(c.set); err != nil {
		return err
	}
	for k, v := range c.set {
		r.put(k, v)
	}
	c.kept()
	return nil
}

// fits returns an error if changes would make the state too large. Before that it removes the
// remembered single items from the state and from changes: steps can do without. r.mu must be
// held.
func (r *Runner) fits(changes map[string]*string) error {
	size, grows := r.sizeWith(changes)
	if grows == "" || size <= r.o.StateLimit {
		return nil
	}
	for key := range r.state {
		if strings.HasPrefix(key, stateItems) {
			r.put(key, nil)
		}
	}
	maps.DeleteFunc(changes, func(key string, value *string) bool { return value != nil && strings.HasPrefix(key, stateItems) })
	if size, grows = r.sizeWith(changes); grows == "" || size <= r.o.StateLimit {
		return nil
	}
	what := strconv.Quote(strings.TrimPrefix(grows, stateOwn))
	if name, ok := strings.CutPrefix(grows, stateStep); ok {
		what = "the place of step " + strconv.Quote(name)
	}
	return fmt.Errorf("%w: %d bytes with %s, the limit is %d; keep large things elsewhere", ErrStateLimit, size, what, r.o.StateLimit)
}

// sizeWith returns the size of the state with some changes and all changes of units in
// progress. grows is the key with the largest new value, "" = none.
func (r *Runner) sizeWith(changes map[string]*string) (size int, grows string) {
	pending := changes
	if len(r.layers) > 0 {
		pending = map[string]*string{}
		for _, layer := range r.layers {
			maps.Copy(pending, layer)
		}
		maps.Copy(pending, changes)
	}
	size = r.size
	for k, v := range pending {
		if old, ok := r.state[k]; ok {
			size -= len(k) + len(old)
		}
		if v != nil {
			size += len(k) + len(*v)
		}
	}
	for k, v := range changes {
		if v != nil && (grows == "" || len(*v) > len(*changes[grows])) {
			grows = k
		}
	}
	return size, grows
}

// put changes the state itself. r.mu must be held.
func (r *Runner) put(key string, value *string) {
	old, ok := r.state[key]
	if ok {
		r.size -= len(key) + len(old)
	}
	switch {
	case value != nil:
		r.state[key] = *value
		r.size += len(key) + len(*value)
		if ok && old == *value {
			return
		}
	case ok:
		delete(r.state, key)
	default:
		return
	}
	r.dirty[key] = true
}
