package sqlscan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/resqued/resqued/longjob"
)

// reviewPause is how long ReviewingSelectLoop waits before another round if the last one had no
// effect.
const reviewPause = time.Second

// reviewed is the state of a ReviewingSelectLoop between batches.
type reviewed struct {
	place
	// Back counts the calls of the function for rows that still matched afterwards, for at most
	// maxLeft rows.
	Back map[string]int `json:"back,omitempty"`
	// Rest is how many other rows still matched in this round, Least the lowest such number of
	// any round, and Vain the number of rounds since then.
	Rest  int64 `json:"rest,omitempty"`
	Least int64 `json:"least,omitempty"`
	Vain  int   `json:"vain,omitempty"`
	// Called is the number of rows for which the function was called in this round; Helped is
	// how many of these no longer match; Stuck is how many rows were skipped.
	Called int64 `json:"called,omitempty"`
	Helped int64 `json:"helped,omitempty"`
	Stuck  int64 `json:"stuck,omitempty"`
}

// review is a ReviewingSelectLoop in a slice. It calls a function for rows of the type T: either fn
// for each, or batch for those of a batch.
type review[T any] struct {
	*scan
	fetch func(ctx context.Context, tx transaction, keys [][]string) ([]T, error)
	fn    func(ctx context.Context, row T) error
	batch func(ctx context.Context, rows []T) error
}

func (s *review[T]) run(ctx context.Context) error {
	return s.wrap(longjob.WorkPages(ctx, s.r, s.step, s.page))
}

// page processes one batch.
func (s *review[T]) page(ctx context.Context, at reviewed) (page longjob.Page[reviewed], err error) {
	if err := s.brake(ctx); err != nil {
		return page, err
	}
	s.slowest = 0
	next := at
	if next.Back = maps.Clone(at.Back); next.Back == nil {
		next.Back = map[string]int{}
	}
	var found []candidate
	var all []T
	size := 0
	err = s.again(ctx, &at.place, func(ctx context.Context) error {
		// One snapshot, so that keys and rows belong together.
		return s.d.transaction(ctx, s.limits(snapshot, at.place), func(tx transaction) (err error) {
			size = s.size(at.place)
			if next.place, err = s.begin(ctx, tx, at.place); err != nil || next.Over {
				return err
			}
			if err := s.look(ctx, tx, &next.place); err != nil {
				return err
			}
			found, err = tx.candidates(ctx, span{from: next.Last, to: next.Edge}, size, false)
			if all = nil; err != nil || len(found) == 0 {
				return err
			}
			if err := tx.byKey(ctx); err != nil {
				return err
			}
			all, err = s.fetch(ctx, tx, keysOf(found))
			return err
		})
	})
	if err != nil {
		return page, err
	}
	if len(all) != len(found) {
		return page, fmt.Errorf("%d rows match, %d are read", len(found), len(all))
	}
	called, passed, err := s.call(ctx, found, all, &next)
	if err != nil {
		return page, err
	}
	helped, err := s.judge(ctx, called, &next)
	if err != nil {
		return page, err
	}
	next.Called += int64(len(called))
	next.Helped += helped
	switch {
	case next.Over: // the table is empty
	case passed < len(found) || len(found) == size:
		next.Last = found[passed-1].key
	default:
		next.leap()
	}
	s.pages++
	s.adapt(&next.place, int64(len(found)))
	page = longjob.Page[reviewed]{Done: helped, Total: next.Total}
	if next.Over {
		if page.Last, err = s.endRound(ctx, &next); err != nil {
			return page, err
		}
	}
	page.Next = next
	return page, nil
}

// call calls the function for rows, as long as there is time, and returns the keys for which it
// was called and how many rows were passed.
func (s *review[T]) call(ctx context.Context, found []candidate, all []T, next *reviewed) (called [][]string, passed int, err error) {
	calls := calls[T]{fn: s.fn, free: make(chan struct{}, s.o.Parallel)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var batch []T
	for began := time.Now(); passed < len(found) && (passed == 0 || s.batch != nil || time.Since(began) < s.o.HoldFor); passed++ {
		key := found[passed].key
		switch {
		case next.Back[name(key)] >= s.o.Calls:
			next.Stuck++
			continue
		case s.batch != nil:
			batch = append(batch, all[passed])
		case s.o.Parallel > 1:
			if !calls.begin(ctx, cancel, all[passed]) {
				return nil, 0, calls.end()
			}
		default:
			err = s.fn(ctx, all[passed])
		}
		if err != nil {
			return nil, 0, fnError{err}
		}
		called = append(called, key)
	}
	if len(batch) > 0 {
		if err := s.batch(ctx, batch); err != nil {
			return nil, 0, fnError{err}
		}
	}
	return called, passed, calls.end()
}

// calls are calls of a function at the same time.
type calls[T any] struct {
	fn   func(ctx context.Context, row T) error
	free chan struct{}
	all  sync.WaitGroup

	mu    sync.Mutex
	err   error
	panic any
}

// begin calls the function when fewer calls than allowed are under way. It returns false if one
// has failed; cancel ends the others then.
func (c *calls[T]) begin(ctx context.Context, cancel func(), row T) bool {
	c.free <- struct{}{}
	c.mu.Lock()
	failed := c.err != nil || c.panic != nil
	c.mu.Unlock()
	if failed {
		return false
	}
	c.all.Go(func() {
		done := false
		var err error
		defer func() {
			v := recover()
			if !done && v == nil {
				v = "the function ended its goroutine (runtime.Goexit) instead of returning"
			}
			c.mu.Lock()
			if v != nil && c.panic == nil {
				c.panic = v
			}
			if err != nil && c.err == nil {
				c.err = fnError{err}
			}
			c.mu.Unlock()
			if err != nil || v != nil {
				cancel()
			}
			<-c.free
		}()
		err = c.fn(ctx, row)
		done = true
	})
	return true
}

// end waits for the calls that are under way. The panic of one becomes the job's, instead of
// ending the process.
func (c *calls[T]) end() error {
	c.all.Wait()
	if c.panic != nil {
		panic(c.panic)
	}
	return c.err
}

// endRound ends a round: it is the last one if there was nothing to do in it.
func (s *scan) endRound(ctx context.Context, next *reviewed) (last bool, err error) {
	switch {
	case next.Rest == 0:
		next.Least, next.Vain = 0, 0
	case next.Least == 0 || next.Rest < next.Least:
		next.Least, next.Vain = next.Rest, 1
	default:
		next.Vain++
	}
	if next.Called == 0 || next.Rest > 0 && next.Vain >= s.o.Calls {
		if stuck := next.Stuck + next.Called - next.Helped; stuck > 0 && !s.o.KeepStuck {
			return false, fmt.Errorf("%w: %d, after %d calls each; some of them: %s", ErrStuck, stuck, s.o.Calls, some(next.Back))
		}
		return true, nil
	}
	if next.Helped == 0 {
		s.rest(ctx, reviewPause)
	}
	*next = reviewed{
		place: place{Total: next.Total, Size: next.Size, Quick: next.Quick},
		Back:  next.Back, Least: next.Least, Vain: next.Vain,
	}
	return false, nil
}

// judge checks which rows still match, and returns how many do not.
func (s *scan) judge(ctx context.Context, called [][]string, at *reviewed) (helped int64, err error) {
	if len(called) == 0 {
		return 0, nil
	}
	var still [][]string
	err = s.again(ctx, nil, func(ctx context.Context) error {
		l := s.limits(looking, at.place)
		l.statement = s.o.StatementTimeout
		return s.d.transaction(ctx, l, func(tx transaction) (err error) {
			if err := tx.know(ctx); err != nil {
				return err
			}
			if err := tx.byKey(ctx); err != nil {
				return err
			}
			still, err = tx.matching(ctx, called)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	again := map[string]bool{}
	for _, key := range still {
		again[name(key)] = true
	}
	for _, key := range called {
		row := name(key)
		switch n := at.Back[row]; {
		case !again[row]:
			delete(at.Back, row)
			helped++
		case n == 0 && len(at.Back) >= maxLeft:
			at.Rest++
		default:
			at.Back[row] = n + 1
		}
	}
	return helped, nil
}

func keysOf(found []candidate) [][]string {
	keys := make([][]string, len(found))
	for i, c := range found {
		keys[i] = c.key
	}
	return keys
}

// name returns a key as one string.
func name(key []string) string {
	text, _ := json.Marshal(key) // strings always encode
	return string(text)
}

// some lists a few rows for an error message.
func some(back map[string]int) string {
	names := slices.Sorted(maps.Keys(back))
	return strings.Join(names[:min(len(names), 10)], " ")
}
