package sqlscan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
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
	// Called is the number of rows for which the function was called in this round, Helped how
	// many of these no longer match, and Stuck how many rows were skipped.
	Called int64 `json:"called,omitempty"`
	Helped int64 `json:"helped,omitempty"`
	Stuck  int64 `json:"stuck,omitempty"`
}

// review is a ReviewingSelectLoop in a slice. It calls either fn for each row, or batch for all
// rows of a batch.
type review[T any] struct {
	*scan
	fetch fetch[T]
	fn    func(ctx context.Context, row T) error
	batch func(ctx context.Context, rows []T) error
	// few is roughly how many rows there is time for; 0 = as many as are read.
	few int
}

func (s *review[T]) run(ctx context.Context) error {
	return s.wrap(longjob.WorkPages(ctx, s.r, s.step, s.page))
}

type batch[T any] struct {
	next  reviewed // where the next one begins
	size  int      // number of rows requested
	found []candidate
	rows  []T
	// passed is how many rows were passed. called has the keys of the rows for which the
	// function was called.
	passed int
	called [][]string
	// used means that the function has asked for a transaction. redo is how many rows at the
	// front must be processed again after an error that has undone them.
	used bool
	redo int
}

func (s *review[T]) page(ctx context.Context, at reviewed) (page longjob.Page[reviewed], err error) {
	if err := s.brake(ctx); err != nil {
		return page, err
	}
	s.slowest = 0
	var b *batch[T]
	var failed error
	most := s.most
	err = s.again(ctx, &at.place, func(ctx context.Context) (err error) {
		var undone error // why rows are processed again
		for failed = nil; ; {
			if b, err = s.read(ctx, at, most); err != nil {
				return err
			}
			// A unit, so that changes of the state by fn are dropped with its transaction.
			err = s.r.WorkUnit(ctx, func(ctx context.Context) error { return s.call(ctx, b) })
			if undone != nil && ctx.Err() == nil && errors.Is(err, longjob.ErrYield) && s.pages == 0 && !leaving(ctx) {
				return undone // the next slice would end the same way
			}
			if err == nil || ctx.Err() != nil || runnerSays(err) {
				return err
			}
			if !b.used { // not an error of the shared transaction
				failed = err
				return nil
			}
			v := s.d.judge(err)
			if v.locked {
				s.shrink(&at.place) // a transaction of fewer rows meets fewer locks
			}
			if v.passing || v.altered || b.redo == 0 {
				return err
			}
			most, undone = b.redo, err
		}
	})
	if err = cmp.Or(err, failed); err != nil {
		return page, err
	}
	next := b.next
	helped, err := s.judge(ctx, b.called, &next)
	if err != nil {
		return page, err
	}
	next.Called += int64(len(b.called))
	next.Helped += helped
	switch {
	case next.Over: // the table is empty
	case b.passed < len(b.found) || len(b.found) == b.size:
		last := b.found[b.passed-1].key
		if err := next.behind(last); err != nil {
			return page, err
		}
		next.Last = last
	default:
		next.leap()
	}
	s.pages++
	s.fit(b.passed, len(b.found))
	s.adapt(&next.place, int64(len(b.found)))
	page = longjob.Page[reviewed]{Done: helped, Total: next.Total}
	if next.Over {
		if page.Last, err = s.endRound(ctx, &next); err != nil {
			return page, err
		}
	}
	page.Next = next
	return page, nil
}

// read reads at most most rows for a batch.
func (s *review[T]) read(ctx context.Context, at reviewed, most int) (*batch[T], error) {
	b := &batch[T]{}
	// One snapshot, so that keys and rows belong together.
	err := s.transaction(ctx, s.limits(snapshot, at.place), func(tx transaction) (err error) {
		b.size = min(s.size(at.place), most)
		if s.few > 0 {
			b.size = min(b.size, s.few)
		}
		b.next = at
		if b.next.Back = maps.Clone(at.Back); b.next.Back == nil {
			b.next.Back = map[string]int{}
		}
		if b.next.place, err = s.begin(ctx, tx, at.place); err != nil || b.next.Over {
			return err
		}
		if err := s.look(ctx, tx, &b.next.place); err != nil {
			return err
		}
		b.found, err = tx.candidates(ctx, span{from: b.next.Last, to: b.next.Edge}, b.size, false)
		if err != nil || len(b.found) == 0 {
			return err
		}
		if err := tx.byKey(ctx); err != nil {
			return err
		}
		b.rows, err = s.fetch(ctx, tx, keysOf(b.found))
		return err
	})
	if err == nil && len(b.rows) != len(b.found) {
		err = fmt.Errorf("%d rows match, %d are read", len(b.found), len(b.rows))
	}
	return b, err
}

// fit limits the rows that the next batch reads to about as many as there is time for.
func (s *review[T]) fit(passed, found int) {
	switch {
	case passed < found:
		s.few = 2 * passed
	case s.few > 0:
		if s.few *= 2; s.few >= s.most {
			s.few = 0
		}
	}
}

// call calls the function for the rows of a batch, as long as there is time.
func (s *review[T]) call(ctx context.Context, b *batch[T]) (err error) {
	b.passed, b.called, b.used, b.redo = 0, nil, false, 0
	if s.fn != nil && s.o.Parallel > 1 {
		return s.callAtOnce(ctx, b)
	}
	h, began, returned := &holder{s: s.scan}, time.Now(), false
	defer func() {
		if !returned {
			_ = h.end(ctx, errPanic)
		}
	}()
	alone := true // the transaction contains nothing for other rows
	var rows []T
	for ; b.passed < len(b.found); b.passed++ {
		if b.passed > 0 && s.batch == nil && (time.Since(began) >= s.o.HoldFor || h.held() >= s.o.HoldFor/10) {
			break
		}
		if !s.next(b) {
			continue
		}
		if s.batch != nil {
			rows = append(rows, b.rows[b.passed])
			continue
		}
		alone = h.held() == 0
		if err = h.call(ctx, func(ctx context.Context) error { return s.fn(ctx, b.rows[b.passed]) }); err != nil {
			break
		}
	}
	if len(rows) > 0 {
		err = h.call(ctx, func(ctx context.Context) error { return s.batch(ctx, rows) })
	}
	returned = true
	b.used = h.asked()
	switch {
	case err == nil:
		if err = h.end(ctx, nil); err != nil && s.batch == nil && !errors.Is(err, errEnded) {
			b.redo = b.passed / 2 // any row may be the cause
		}
		return err
	case !alone && !errors.Is(err, errEnded): // the transaction of the other rows is undone too
		b.redo = b.passed // the rows before it
	}
	return h.end(ctx, err)
}

func (s *review[T]) next(b *batch[T]) bool {
	key := b.found[b.passed].key
	if b.next.Back[name(key)] >= s.o.Calls {
		b.next.Stuck++
		return false
	}
	b.called = append(b.called, key)
	return true
}

// callAtOnce calls the function for several rows at a time, each on a goroutine and with a
// transaction of its own. The first error ends the others.
func (s *review[T]) callAtOnce(ctx context.Context, b *batch[T]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // guards failed and b.used
	var failed error
	free := make(chan struct{}, s.o.Parallel)
	for began := time.Now(); b.passed < len(b.found) && (b.passed == 0 || time.Since(began) < s.o.HoldFor); b.passed++ {
		if !s.next(b) {
			continue
		}
		row, h := b.rows[b.passed], &holder{s: s.scan}
		free <- struct{}{}
		mu.Lock()
		over := failed != nil
		mu.Unlock()
		if over {
			break
		}
		all.Go(func() {
			err := errors.New("the function ended its goroutine (runtime.Goexit) instead of returning")
			defer func() {
				if v := recover(); v != nil { // the process survives
					err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
				}
				err = h.end(ctx, err)
				mu.Lock()
				defer mu.Unlock()
				if err != nil && failed == nil {
					failed, b.used = err, h.asked()
					cancel()
				}
				<-free
			}()
			err = h.call(ctx, func(ctx context.Context) error { return s.fn(ctx, row) })
		})
	}
	all.Wait()
	return failed
}

// endRound ends a round. last is true if there was nothing to do in it.
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

func (s *scan) judge(ctx context.Context, called [][]string, at *reviewed) (helped int64, err error) {
	if len(called) == 0 {
		return 0, nil
	}
	var still [][]string
	err = s.again(ctx, nil, func(ctx context.Context) error {
		l := s.limits(looking, at.place)
		l.statement = s.o.StatementTimeout
		return s.transaction(ctx, l, func(tx transaction) (err error) {
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

func name(key []string) string {
	text, _ := json.Marshal(key) // strings always encode
	return string(text)
}

func some(back map[string]int) string {
	names := slices.Sorted(maps.Keys(back))
	return strings.Join(names[:min(len(names), 10)], " ")
}
