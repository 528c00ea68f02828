package longjob

import (
	"context"
	"encoding/json"
	"fmt"
)

// Page is the result of the function of WorkPages for one page.
type Page[P any] struct {
	// Next is where the next page begins. It must be encodable as JSON.
	Next P
	// Last means that no page follows.
	Last bool
	// Done is the number of items of this page. Total is the number of items of all pages as
	// far as it is known; 0 = unknown. Both are shown as progress.
	Done, Total int64
}

// WorkPages is the step key: it runs fn for one page after the other, each as a unit, until fn
// returns the last one. from is the zero value for the first page, then the Next of the
// previous page, such as the token of a paginated list or the last key that was read. A later
// slice continues with the first page that is not done.
func WorkPages[P any](ctx context.Context, r *Runner, key string, fn func(ctx context.Context, from P) (Page[P], error)) error {
	s, err := r.step(ctx, key)
	if err != nil || s.place.Done {
		return err
	}
	s.enter(0)
	for {
		if err := r.Continue(ctx); err != nil {
			return err
		}
		var from P
		if len(s.place.Value) > 0 {
			if err := json.Unmarshal(s.place.Value, &from); err != nil {
				return fmt.Errorf("longjob: the next page of step %q: %w", key, err)
			}
		}
		var page Page[P]
		var next json.RawMessage
		inner := fmt.Sprintf("%s%s%d", s.name, scopeEnd, s.place.N)
		err := r.unit(ctx, r.within(inner, func(ctx context.Context) (err error) {
			if page, err = fn(ctx, from); err != nil {
				return err
			}
			if next, err = json.Marshal(page.Next); err != nil {
				return fmt.Errorf("longjob: the next page of step %q: %w", key, err)
			}
			return nil
		}), func() (*change, error) {
			s.place.N += page.Done
			s.place.Value = next
			total := page.Total
			if total > 0 { // may be an estimate
				total = max(total, s.place.N)
			}
			return s.mark(inner, total, nil)
		})
		switch {
		case err != nil:
			return err
		case page.Last:
			return s.complete(ctx, 0)
		}
	}
}
