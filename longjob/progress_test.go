//go:build unix

package longjob

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
)

func TestLeft(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		step Step
		rate float64
		left time.Duration
		ok   bool
	}{
		"nothing is known yet":              {step: Step{Total: 10}},
		"one item that goes on":             {step: Step{Total: 10, ItemMilliseconds: 5000}},
		"no total":                          {step: Step{Done: 10, Milliseconds: 1000}, rate: 10},
		"in the middle":                     {step: Step{Done: 10, Total: 40, Milliseconds: 5000}, rate: 2, left: 15 * time.Second, ok: true},
		"in the middle of an item":          {step: Step{Done: 10, Total: 40, Milliseconds: 5000, ItemMilliseconds: 200}, rate: 2, left: 14800 * time.Millisecond, ok: true},
		"an item that takes for ever":       {step: Step{Done: 10, Total: 40, Milliseconds: 5000, ItemMilliseconds: 60000}, rate: 2, left: 14500 * time.Millisecond, ok: true},
		"the last item takes for ever":      {step: Step{Done: 39, Total: 40, Milliseconds: 39000, ItemMilliseconds: 60000}, rate: 1, ok: true},
		"more is done than there should be": {step: Step{Done: 50, Total: 40, Milliseconds: 50000}, rate: 1, ok: true},
		"finished":                          {step: Step{Done: 40, Total: 40, Milliseconds: 20000, Finished: true}, rate: 2, ok: true},
		"longer than a time can be":         {step: Step{Done: 1, Total: 1 << 62, Milliseconds: 1000}, rate: 1, left: 1e9 * time.Second, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left, ok := tc.step.Left()
			require.Equal(t, tc.ok, ok)
			require.Equal(t, tc.left, left)
			require.InDelta(t, tc.rate, tc.step.PerSecond(), 1e-9)
		})
	}
}

// sliced runs a function slice by slice, without Redis, on a clock of its own. Between two
// slices the run waits.
type sliced struct {
	record longstore.Record
	wait   time.Duration
	o      Options
}

func (s *sliced) run(t *testing.T, fn func(ctx context.Context, r *Runner) error) (over bool) {
	t.Helper()
	s.o.SaveEvery = time.Hour // only the end of a slice saves
	r := newRunner(nil, longstore.Slice{}, "L", s.o.defaults(), s.record)
	err := fn(t.Context(), r)
	if !errors.Is(err, ErrYield) {
		require.NoError(t, err)
	}
	r.mu.Lock()
	s.record = longstore.Record{Fields: r.fields(longstore.GoesOn, ""), State: r.state}
	r.mu.Unlock()
	pass(s.wait)
	return err == nil
}

func (s *sliced) steps() []Step { return runOf(s.record).Steps }

func newSliced() *sliced {
	return &sliced{record: longstore.Record{Fields: map[string]string{}, State: map[string]string{}}, wait: time.Hour, o: Options{Slice: 10 * time.Second}}
}

// pass lets time pass, on the clock of the bubble.
func pass(d time.Duration) { <-time.After(d) }

func takes(d time.Duration) func(context.Context, int) error {
	return func(context.Context, int) error { pass(d); return nil }
}

func TestProgress(t *testing.T) {
	t.Parallel()
	t.Run("the time between slices does not count", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSliced()
			fn := func(ctx context.Context, r *Runner) error {
				return WorkEach(ctx, r, "a", make([]int, 100), takes(500*time.Millisecond))
			}
			require.False(t, s.run(t, fn))
			require.False(t, s.run(t, fn))
			require.Equal(t, []Step{{Name: "a", Done: 40, Total: 100, Milliseconds: 20000}}, s.steps())
			left, _ := s.steps()[0].Left()
			require.Equal(t, 30*time.Second, left)
		})
	})

	t.Run("steps one after the other", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSliced()
			fn := func(ctx context.Context, r *Runner) error {
				if err := r.WorkOnce(ctx, "plan", func(context.Context) error { pass(4 * time.Second); return nil }); err != nil {
					return err
				}
				if err := WorkEach(ctx, r, "quick", make([]int, 10), takes(100*time.Millisecond)); err != nil {
					return err
				}
				return WorkEach(ctx, r, "slow", make([]int, 5), takes(20*time.Second))
			}
			require.False(t, s.run(t, fn))
			require.Equal(t, []Step{
				{Name: "plan", Done: 1, Total: 1, Milliseconds: 4000, Finished: true},
				{Name: "quick", Done: 10, Total: 10, Milliseconds: 1000, Finished: true},
				{Name: "slow", Done: 1, Total: 5, Milliseconds: 20000},
			}, s.steps())
			require.False(t, s.run(t, fn))
			left, _ := s.steps()[2].Left()
			require.Equal(t, time.Minute, left)
			for !s.run(t, fn) {
			}
			require.Equal(t, Step{Name: "slow", Done: 5, Total: 5, Milliseconds: 100000, Finished: true}, s.steps()[2])
		})
	})

	t.Run("items that take many slices", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSliced()
			fn := func(ctx context.Context, r *Runner) error {
				return WorkEach(ctx, r, "shops", []int{1, 2, 3, 4}, func(ctx context.Context, _ int) error {
					return WorkEach(ctx, r, "orders", make([]int, 50), takes(time.Second))
				})
			}
			for range 6 { // of ten seconds; each shop takes fifty
				require.False(t, s.run(t, fn))
			}
			require.Equal(t, []Step{{Name: "shops", Done: 1, Total: 4, Milliseconds: 50000, ItemMilliseconds: 10000}}, s.steps())
			left, _ := s.steps()[0].Left()
			require.Equal(t, 140*time.Second, left)
			for !s.run(t, fn) {
			}
			require.Equal(t, []Step{{Name: "shops", Done: 4, Total: 4, Milliseconds: 200000, Finished: true}}, s.steps())
		})
	})

	t.Run("pages", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSliced()
			fn := func(ctx context.Context, r *Runner) error {
				return WorkPages(ctx, r, "pages", func(ctx context.Context, from int) (Page[int], error) {
					p := Page[int]{Next: from + 1, Done: 10, Total: 100, Last: from == 9}
					return p, WorkEach(ctx, r, "rows", make([]int, 4), takes(time.Second))
				})
			}
			require.False(t, s.run(t, fn))
			require.False(t, s.run(t, fn))
			require.False(t, s.run(t, fn))
			require.Equal(t, []Step{{Name: "pages", Done: 70, Total: 100, Milliseconds: 28000, ItemMilliseconds: 2000}}, s.steps())
			left, _ := s.steps()[0].Left()
			require.Equal(t, 11600*time.Millisecond, left)
			for !s.run(t, fn) {
			}
			require.Equal(t, []Step{{Name: "pages", Done: 100, Total: 100, Milliseconds: 40000, Finished: true}}, s.steps())
		})
	})

	t.Run("a total that is known only with a page is shown before it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSliced()
			fn := func(ctx context.Context, r *Runner) error {
				return WorkPages(ctx, r, "pages", func(ctx context.Context, from int) (Page[int], error) {
					p := Page[int]{Next: from + 1, Done: 10, Total: 100}
					return p, WorkEach(ctx, r, "rows", make([]int, 30), takes(time.Second))
				})
			}
			for range 5 { // of ten seconds; each page takes thirty
				require.False(t, s.run(t, fn))
			}
			require.Equal(t, []Step{{Name: "pages", Done: 10, Total: 100, Milliseconds: 30000, ItemMilliseconds: 20000}}, s.steps())
		})
	})

	t.Run("a step is shown before its first item is done", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSliced()
			s.run(t, func(ctx context.Context, r *Runner) error {
				err := WorkTree(ctx, r, "files", map[string]any{"a": 1, "b": 2}, func(ctx context.Context, _ []string, _ any) error {
					return WorkEach(ctx, r, "blocks", make([]int, 100), takes(time.Second))
				})
				require.ErrorIs(t, err, ErrYield)
				return err
			})
			require.Equal(t, []Step{{Name: "files", Total: 2, ItemMilliseconds: 10000}}, s.steps())
			_, ok := s.steps()[0].Left()
			require.False(t, ok)
		})
	})
}

// A step begun by an older version of the program, which this one no longer knows,
// is not shown for a completed run.
func TestRemovedStep(t *testing.T) {
	t.Parallel()
	r := newRunner(nil, longstore.Slice{}, "L", Options{}.defaults(), longstore.Record{Fields: map[string]string{
		"steps": `[{"name":"done","done":4,"total":4,"finished":true},{"name":"removed","done":3,"total":10},{"name":"still","done":3,"total":10}]`,
	}})
	_, err := r.step(t.Context(), "still")
	require.NoError(t, err)
	require.Contains(t, r.fields(longstore.Yields, "")["steps"], "removed")
	fields := r.fields(longstore.Completed, "")
	require.NotContains(t, fields["steps"], "removed")
	require.Contains(t, fields["steps"], "done")
	require.Contains(t, fields["steps"], "still")
}
