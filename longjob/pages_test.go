//go:build unix

package longjob_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
)

func TestPages(t *testing.T) {
	t.Parallel()
	type token struct{ After, Tries int }
	page := func(from token) longjob.Page[token] {
		next := from.After + 10
		return longjob.Page[token]{Next: token{After: next}, Done: 10, Total: 25, Last: next == 40}
	}

	t.Run("each page begins where the one before has ended, also in the next slice", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var began []int
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkPages(ctx, r, "p", func(_ context.Context, from token) (longjob.Page[token], error) {
				began = append(began, from.After)
				return page(from), nil
			})
		}, quick())
		uuid := b.enqueue("L", nil)
		slice := func(queue string) {
			k := b.take(queue)
			k.complete(k.perform())
		}
		slice("q")
		step := b.run(uuid).Steps[0]
		require.Equal(t, []int64{10, 25}, []int64{step.Done, step.Total})
		for range 2 {
			slice("low")
		}
		step = b.run(uuid).Steps[0]
		require.Equal(t, []int64{30, 30}, []int64{step.Done, step.Total}, "there are more than was said")
		require.Equal(t, 1, b.work("low"))
		require.Equal(t, []int{0, 10, 20, 30}, began)
		run := b.run(uuid)
		require.Equal(t, longjob.StatusCompleted, run.Status)
		require.Equal(t, []int64{40, 40, 4}, []int64{run.Steps[0].Done, run.Steps[0].Total, run.Units})
		require.True(t, run.Steps[0].Finished)
	})

	t.Run("a unit within a page counts instead of it", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkPages(ctx, r, "p", func(ctx context.Context, from token) (longjob.Page[token], error) {
				if from.After == 20 { // nothing within this one
					return page(from), nil
				}
				return page(from), r.WorkUnit(ctx, func(context.Context) error { return nil })
			})
		}, longjob.Options{Queue: "q", MaxUnits: 2})
		uuid := b.enqueue("L", nil)
		b.work("q")
		run := b.run(uuid)
		require.Equal(t, longjob.StatusCompleted, run.Status)
		require.Equal(t, []int64{2, 4}, []int64{int64(run.Slices), run.Units})
	})

	t.Run("a page that fails is done again, and what it has set is forgotten", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		broken := true
		var began, seen []int
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkPages(ctx, r, "p", func(ctx context.Context, from token) (longjob.Page[token], error) {
				began = append(began, from.After)
				n, err := longjob.State(r, "n", 0)
				if err != nil {
					return longjob.Page[token]{}, err
				}
				seen = append(seen, n)
				if err := longjob.SetState(r, "n", n+1); err != nil {
					return longjob.Page[token]{}, err
				}
				if err := r.WorkOnce(ctx, "once", func(context.Context) error { return nil }); err != nil {
					return longjob.Page[token]{}, err
				}
				if broken && from.After == 20 {
					broken = false
					return longjob.Page[token]{}, b.dies()
				}
				return page(from), nil
			})
		}, longjob.Options{Queue: "q"})
		uuid := b.enqueue("L", nil)
		b.crash("q")
		b.work("q")
		require.Equal(t, []int{0, 10, 20, 20, 30}, began)
		require.Equal(t, []int{0, 1, 2, 2, 3}, seen)
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
	})
}
