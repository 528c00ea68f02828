package longjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrListChanged means that the items of this slice do not begin with the items that the step
// has done, so it is unknown which items remain.
var ErrListChanged = errors.New("longjob: the items are not those of the slice before")

// WorkEach is the step key: it runs fn for each item, each as a unit. Each slice does the items
// that the run has not done yet, in the order of the list. Between two slices items may be
// added, removed and moved. When the step ends, every item in the list has been done.
//
// Items are compared by their JSON, and equal items are done as often as they are in the list.
// Use items that do not change when they are processed, such as ids. An item that leaves the
// list and comes back in a later slice is done again.
//
// Done items are remembered one by one, up to 20,000 and as far as they fit into
// Options.StateLimit. Otherwise a later slice continues behind them if the list still begins
// with them. If the last one of them has left the list, the slice begins at the front, because
// all of them may have left. In any other case the step fails with ErrListChanged.
func WorkEach[T any](ctx context.Context, r *Runner, key string, items []T, fn func(ctx context.Context, item T) error) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	l := &list{step: s, n: len(items), print: func(i int) (mark64, error) {
		m, _, err := fingerprint(items[i])
		return m, err
	}}
	return l.work(ctx, func(ctx context.Context, i int) error { return fn(ctx, items[i]) })
}

// list is a step whose items are all known in advance.
type list struct {
	*step
	n     int
	print func(i int) (mark64, error)
	// was returns which items are done, from a place that an older version has saved.
	was func() []bool

	from   int      // items before it are done
	done   []bool   // by index; nil = no further items
	prints []mark64 // of all items; nil = too many
	items  *items   // what is remembered one by one; nil = nothing
	left   map[mark64]int
	sum    checksum // of the items done at the front
	total  int64
}

func (l *list) work(ctx context.Context, fn func(ctx context.Context, i int) error) error {
	if err := l.resume(); err != nil {
		return err
	}
	l.enter(l.total)
	for i := l.from; i < l.n; i++ {
		print, err := l.printOf(i)
		if err != nil {
			return err
		}
		if l.done != nil && l.done[i] {
			l.sum.add(print)
			continue
		}
		err = l.item(ctx, print, l.total, func(ctx context.Context) error { return fn(ctx, i) }, func() map[string]*string {
			return l.note(i, print)
		})
		if err != nil {
			return err
		}
	}
	return l.complete(ctx, l.total)
}

func (l *list) printOf(i int) (mark64, error) {
	if l.prints != nil {
		return l.prints[i], nil
	}
	return l.print(i)
}

// note records that item i and all before it are done, and returns what to save with that.
func (l *list) note(i int, print mark64) map[string]*string {
	l.sum.add(print)
	l.place.Front, l.place.Sum, l.place.Of = int64(i+1), l.sum.String(), int64(l.n)
	if l.items == nil {
		return nil
	}
	l.left[print]--
	set := l.items.add(print, l.left[print], l.r.state)
	if l.place.Parts = l.items.parts(); l.place.Parts == 0 { // it did not fit
		l.items, l.place.Each = nil, false
	}
	return set
}

func (l *list) resume() error {
	l.total = l.place.N + int64(l.n)
	l.r.mu.Lock()
	var known map[mark64]tally
	if l.place.Each {
		known = loadItems(l.name, l.place.Parts, l.r.state)
	}
	l.r.mu.Unlock()
	if l.n <= maxItems || known != nil {
		l.prints = make([]mark64, l.n)
		for i := range l.n {
			var err error
			if l.prints[i], err = l.print(i); err != nil {
				return err
			}
		}
	}
	switch {
	case l.place.N == 0 || known != nil:
	case l.place.Sum == "" && l.was != nil:
		l.done = l.was()
	default:
		front, err := l.front()
		if err != nil {
			return err
		}
		if front == 0 {
			l.r.warn(fmt.Sprintf("step %q has begun again at the front of its list, because the last of the %d items that are done is not in it any more", l.key, l.place.N))
			break
		}
		if l.prints == nil {
			l.from, l.total, l.place.Each = front, l.total-int64(front), false
			return nil
		}
		l.sum, l.done = checksum{}, make([]bool, l.n)
		for i := range front {
			l.done[i] = true
		}
	}
	if l.prints != nil {
		return l.remember(known)
	}
	return nil
}

// front returns how many items at the front of the list are done because the list still begins
// with them; 0 = the list may contain none of them. It adds them to the sum.
func (l *list) front() (int, error) {
	front := l.place.Front
	if l.place.Sum == "" { // an older version saved only the last one
		front = l.place.N
	}
	there := false
	for i := range l.n {
		print, err := l.printOf(i)
		if err != nil {
			return 0, err
		}
		last := print.String() == l.place.Last
		there = there || last
		if int64(i) >= front {
			continue
		}
		l.sum.add(print)
		if int64(i) == front-1 && (l.place.Sum == l.sum.String() || l.place.Sum == "" && last) {
			return i + 1, nil
		}
	}
	if there && l.place.Sum != "" {
		return 0, fmt.Errorf("%w: the list of step %q has changed in front of the last of its %d items that are done; of so many they are not remembered one by one. "+
			"Use WorkAfter for a list that changes, and begin a new run", ErrListChanged, l.key, l.place.N)
	}
	l.sum = checksum{}
	return 0, nil
}

// remember compares the list with what is known of it, and determines which items are done.
func (l *list) remember(known map[mark64]tally) error {
	there := map[mark64]int{}
	for _, print := range l.prints {
		there[print]++
	}
	then := known
	if l.done != nil { // from the front of the list, or from an older version
		then = map[mark64]tally{}
		for i, done := range l.done {
			c := then[l.prints[i]]
			if done {
				c.done++
			} else {
				c.left++
			}
			then[l.prints[i]] = c
		}
	}
	found, now := 0, map[mark64]tally{}
	for print, c := range then {
		// If there are fewer than before, done ones have left.
		n := there[print]
		left := min(n, c.left)
		if n >= c.done+c.left {
			left = n - c.done
		}
		if n > left {
			now[print] = tally{n - left, left}
			found += n - left
		}
	}
	if len(then) > 0 && found == 0 && int64(l.n) == l.place.Of {
		l.r.warn(fmt.Sprintf("none of the %d items of step %q that are done is in its list any more, which is as long as before; if they should be, pass items whose JSON does not change as they are worked, such as ids",
			l.place.N, l.key))
	}
	l.done, l.left = make([]bool, l.n), there
	passed := map[mark64]int{}
	for i, print := range l.prints {
		if passed[print] < now[print].done {
			passed[print]++
			there[print]--
			l.done[i] = true
		}
	}
	l.total -= int64(found)
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.items = newItems(l.name, known, now, l.place.Parts, l.r)
	if parts := l.items.parts(); parts != l.place.Parts || !l.place.Each {
		l.place.Each, l.place.Parts = true, parts
		text, err := json.Marshal(l.place) // saved together with the parts
		if err != nil {
			return fmt.Errorf("longjob: step %q: %w", l.key, err)
		}
		value := string(text)
		l.r.put(stateStep+l.name, &value)
	}
	l.forget(there)
	return nil
}

// forget clears the steps within items that have left the list. r.mu must be held.
func (l *list) forget(there map[mark64]int) {
	for key := range l.r.state {
		for _, kind := range []string{stateStep, stateItems} {
			rest, ok := strings.CutPrefix(key, kind+l.name+scopeEnd)
			item, _, within := strings.Cut(rest, scopeEnd)
			if !ok || !within {
				continue
			}
			if _, ok := there[parseMark(item)]; !ok {
				l.r.put(key, nil)
			}
		}
	}
}
