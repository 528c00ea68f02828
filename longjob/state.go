package longjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Keys of the state: what the program keeps, and how far the steps are.
const (
	stateOwn  = "s:"
	stateStep = "o:"
)

// State returns what the run remembers under a key, or def if it has never been set.
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

// StateOnce is State with a value that is computed and set where there is none.
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

// SetState has the run remember a value as JSON. Within a unit it counts when the unit has
// returned nil. It is saved with the next save: at the end of a slice, at a check-in, or
// when a step of WorkOnce, WorkEach or WorkTree is done; with its own step, never before.
func SetState[T any](r *Runner, key string, v T) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("longjob: state %q: %w", key, err)
	}
	value := string(text)
	return r.set(stateOwn+key, &value)
}

// ClearState has the run forget a key.
func ClearState(r *Runner, key string) error { return r.set(stateOwn+key, nil) }

// look returns what a key holds at this moment of the unit that is under way.
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

// merge sets keys, and clears those whose value is nil: all of them, or none if the state
// would be too large.
func (r *Runner) merge(changes map[string]*string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// As if all that units have set by now had come to stay.
	size, grows, pending := r.size, "", map[string]*string{}
	for _, layer := range r.layers {
		maps.Copy(pending, layer)
	}
	maps.Copy(pending, changes)
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
	if grows != "" && size > r.o.StateLimit {
		return fmt.Errorf("%w: %d bytes with %q, the limit is %d; keep large things elsewhere", ErrStateLimit, size, grows, r.o.StateLimit)
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

// put changes the state itself; r.mu is held.
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
