package longjob

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
)

// WorkSeq is like WorkEach for an iterator, which must yield the same items in the same order
// in each slice. Done items are skipped; if they differ from those of earlier slices, the step
// fails with ErrListChanged. total is the number of items for the progress; 0 = unknown.
func WorkSeq[T any](ctx context.Context, r *Runner, key string, total int64, seq iter.Seq[T], fn func(ctx context.Context, item T) error) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	s.enter(total)
	var sum checksum
	passed := int64(0)
	for item := range seq {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		print, _, err := fingerprint(item)
		if err != nil {
			return fmt.Errorf("step %q: %w", key, err)
		}
		if passed < s.place.N {
			sum.add(print)
			if passed++; passed == s.place.N && !s.same(print, &sum) {
				return s.changed()
			}
			continue
		}
		err = s.item(ctx, print, total, func(ctx context.Context) error { return fn(ctx, item) }, func() map[string]*string {
			sum.add(print)
			passed++
			s.place.Front, s.place.Sum = s.place.N, sum.String()
			return nil
		})
		if err != nil {
			return err
		}
	}
	if passed < s.place.N && ctx.Err() == nil {
		return s.changed()
	}
	return s.complete(ctx, total)
}

// same reports whether the skipped items, of which last is the last, are the done ones. An
// older version saved only the last one.
func (s *step) same(last mark64, sum *checksum) bool {
	if s.place.Sum == "" {
		return last.String() == s.place.Last
	}
	return sum.String() == s.place.Sum
}

func (s *step) changed() error {
	return fmt.Errorf("%w: the first %d items of step %q are others than those that are done, or fewer. An iterator or channel has to give the same items in the same order in each slice; "+
		"use WorkEach or WorkAfter for a list that changes, and begin a new run", ErrListChanged, s.place.N, s.key)
}

// WorkChan is like WorkSeq for a channel, until it is closed. In each slice the channel must
// deliver all items in the same order.
func WorkChan[T any](ctx context.Context, r *Runner, key string, total int64, items <-chan T, fn func(ctx context.Context, item T) error) error {
	return WorkSeq(ctx, r, key, total, func(yield func(T) bool) {
		for {
			select {
			case item, ok := <-items:
				if !ok || !yield(item) {
					return
				}
			case <-ctx.Done():
				// WorkSeq returns the cause. Without this item the step would look complete.
				var none T
				yield(none)
				return
			}
		}
	}, fn)
}

// WorkAfter is like WorkEach for items that can be read from any point on, such as the rows of
// a table by their key. next gets the last item that is done, or nil at first, and yields the
// items after it in a fixed order, whether or not that item still exists. If it yields an
// error, the step ends with it. Items added later before that item are not done, so use a key
// that grows. WorkAfter suits very many items, because it does not read done items again. total
// is the number of items for the progress; 0 = unknown.
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
		print, text, err := fingerprint(item)
		if err != nil {
			return fmt.Errorf("step %q: %w", key, err)
		}
		err = s.item(ctx, print, total, func(ctx context.Context) error { return fn(ctx, item) }, func() map[string]*string {
			s.place.Value = text
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.complete(ctx, total)
}
