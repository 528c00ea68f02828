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

// review is a ReviewingSelectLoop in a slice. It calls a function for rows of the type T.
type review[T any] struct {
	*scan
	fetch func(ctx context.Context, tx transaction, keys [][]string) ([]T, error)
	fn    func(ctx context.Context, row T) error
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
// was called and how many rows were passed. Each was begun in their order, so that none of the
// rows passed is without its call.
func (s *review[T]) call(ctx context.Context, found []candidate, all []T, next *reviewed) (called [][]string, passed int, err error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var calls sync.WaitGroup
	defer calls.Wait() // also when fn panics
	free := make(chan struct{}, s.o.Parallel)
	var mu sync.Mutex
	var crash any
	failed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return err != nil || crash != nil
	}
	for ; passed < len(found) && (passed == 0 || time.Since(began) < s.o.HoldFor); passed++ {
		key := found[passed].key
		if next.Back[name(key)] >= s.o.Calls {
			next.Stuck++
			continue
		}
		if s.o.Parallel == 1 {
			if err := s.fn(ctx, all[passed]); err != nil {
				return nil, 0, fnError{err}
			}
			called = append(called, key)
			continue
		}
		free <- struct{}{}
		if failed() {
			<-free
			break
		}
		called = append(called, key)
		row := all[passed]
		calls.Go(func() {
			defer func() {
				v := recover()
				mu.Lock()
				if crash == nil {
					crash = v
				}
				mu.Unlock()
				<-free
			}()
			if fnErr := s.fn(ctx, row); fnErr != nil {
				mu.Lock()
				if err == nil {
					err = fnError{fnErr}
				}
				mu.Unlock()
				cancel() // what the others do is judged when the batch is done again
			}
		})
	}
	calls.Wait()
	if crash != nil {
		panic(crash) // of the job, not of a goroutine that takes the process with it
	}
	return called, passed, err
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
