package sqlscan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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

// ReviewingSelectLoop calls fn for each row that matches a query, and runs the query again until no
// row matches: fn is expected to change the row. It is the step key of the run. scan converts a
// row: pgx.RowToStructByName, pgx.RowToMap or a similar function.
//
// While fn runs, no transaction is open and no row is locked, so fn may use other connections and
// take its time. A row is as it was when it was read, at most Options.HoldFor ago. After the death
// of a process, fn is called again for the rows of its last batch that still match.
//
// fn is called Options.Calls times for a row that still matches. After that the loop skips the row,
// and when no other rows are left it fails with ErrStuck. If more than a thousand rows still match,
// fn is called for the others in each round, until their number has not fallen for as many rounds.
func ReviewingSelectLoop[T any](ctx context.Context, r *longjob.Runner, key string, db DB, q Query, o Options,
	scan pgx.RowToFunc[T], fn func(ctx context.Context, row T) error,
) error {
	s, err := newScan(r, key, db, q, o)
	if err != nil {
		return err
	}
	return s.wrap(longjob.WorkPages(ctx, r, key, func(ctx context.Context, at reviewed) (longjob.Page[reviewed], error) {
		return review(ctx, s, at, scan, fn)
	}))
}

// review processes one batch.
func review[T any](ctx context.Context, s *scan, at reviewed, scan pgx.RowToFunc[T], fn func(ctx context.Context, row T) error) (page longjob.Page[reviewed], err error) {
	s.slowest = 0
	next := at
	if next.Back = maps.Clone(at.Back); next.Back == nil {
		next.Back = map[string]int{}
	}
	var found []candidate
	var all []T
	size := 0
	err = s.again(ctx, s.shrink(&at.place), func(ctx context.Context) error {
		// One snapshot, so that keys and rows belong together.
		o := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return s.transaction(ctx, o, func(tx pgx.Tx) (err error) {
			size = max(s.o.Batch>>at.Shrink, 1)
			if next.place, err = s.begin(ctx, tx, at.place); err != nil || next.Over {
				return err
			}
			if err := s.look(ctx, tx, &next.place); err != nil {
				return err
			}
			found, err = s.candidates(ctx, tx, span{from: next.Last, to: next.Edge}, size, false)
			if all = nil; err != nil || len(found) == 0 {
				return err
			}
			if err := s.byKey(ctx, tx); err != nil {
				return err
			}
			all, err = fetch(ctx, s, tx, keysOf(found), scan)
			return err
		})
	})
	if err != nil {
		return page, err
	}
	if len(all) != len(found) {
		return page, fmt.Errorf("%d rows match, %d are read", len(found), len(all))
	}
	var called [][]string
	passed := 0
	for began := time.Now(); passed < len(found) && (passed == 0 || time.Since(began) < s.o.HoldFor); passed++ {
		key := found[passed].key
		if next.Back[name(key)] >= s.o.Calls {
			next.Stuck++
			continue
		}
		if err := fn(ctx, all[passed]); err != nil {
			return page, fnError{err}
		}
		called = append(called, key)
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
	s.grow(&next.place)
	page = longjob.Page[reviewed]{Done: helped, Total: next.Total}
	if next.Over {
		if page.Last, err = s.endRound(ctx, &next); err != nil {
			return page, err
		}
	}
	page.Next = next
	return page, nil
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
		place: place{Total: next.Total, Shrink: next.Shrink, Quick: next.Quick},
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
	err = s.again(ctx, func() bool { return false }, func(ctx context.Context) error {
		return s.transaction(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
			if err := s.know(ctx, tx); err != nil {
				return err
			}
			if err := s.byKey(ctx, tx); err != nil {
				return err
			}
			still, err = s.matching(ctx, tx, called)
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
