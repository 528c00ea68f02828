//go:build unix

package longjob_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

// A mistake with keys or contexts would skip work.
func TestStepsThatWouldPassWorkOver(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]func(ctx context.Context, r *longjob.Runner) error{
		`step "rows" was used before`: func(ctx context.Context, r *longjob.Runner) error {
			for _, part := range [][]int{{1, 2}, {3, 4}} {
				if err := longjob.WorkEach(ctx, r, "rows", part, func(context.Context, int) error { return nil }); err != nil {
					return err
				}
			}
			return nil
		},
		`step "mail" is called with a context from outside`: func(ctx context.Context, r *longjob.Runner) error {
			return longjob.WorkEach(ctx, r, "shops", []int{1, 2}, func(context.Context, int) error {
				return r.WorkOnce(ctx, "mail", func(context.Context) error { return nil })
			})
		},
		`step "inner" is called with a context from outside`: func(ctx context.Context, r *longjob.Runner) error {
			return longjob.WorkPages(ctx, r, "pages", func(_ context.Context, from int) (longjob.Page[int], error) {
				return longjob.Page[int]{Next: from + 1, Last: from == 2}, r.WorkOnce(ctx, "inner", func(context.Context) error { return nil })
			})
		},
	} {
		for _, units := range []int{0, 1} {
			t.Run(fmt.Sprint(name, " ", units), func(t *testing.T) {
				t.Parallel()
				b := newBed(t)
				longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ int) error { return fn(ctx, r) },
					longjob.Options{Queue: "q", MaxUnits: units})
				id := b.enqueue("L", 1)
				b.work("q")
				run := b.run(id)
				require.Equal(t, longjob.StatusFailed, run.Status)
				require.Contains(t, run.Error, name)
			})
		}
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	t.Run("each item is worked once, and the next slice goes on behind the last", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var done []string
		var nums []int
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, n int) error {
			nums = append(nums, r.Slice())
			if err := r.WorkOnce(ctx, "setup", func(context.Context) error { done = append(done, "setup"); return nil }); err != nil {
				return err
			}
			items := make([]int, n)
			for i := range items {
				items[i] = i
			}
			return longjob.WorkEach(ctx, r, "copy", items, func(_ context.Context, i int) error {
				done = append(done, fmt.Sprint(i))
				return nil
			})
		}, quick())
		uuid := b.enqueue("L", 5)
		require.Equal(t, longjob.StatusQueued, b.run(uuid).Status)
		require.Equal(t, 1, b.work("q"), "further slices go to the other queue")
		require.Equal(t, 5, b.work("low"))
		require.Equal(t, []string{"setup", "0", "1", "2", "3", "4"}, done)
		require.Equal(t, []int{1, 2, 3, 4, 5, 6}, nums)
		run := b.run(uuid)
		require.Equal(t, longjob.StatusCompleted, run.Status)
		require.EqualValues(t, 6, run.Units)
		require.Equal(t, 6, run.Slices)
		require.Len(t, run.Steps, 2)
		require.EqualValues(t, 5, run.Steps[1].Done)
		require.EqualValues(t, 5, run.Steps[1].Total)
		require.True(t, run.Steps[1].Finished)
		require.Empty(t, b.redis.LRange(t.Context(), b.ns+":failed", 0, -1).Val())
		require.Zero(t, b.redis.Exists(t.Context(), b.ns+":resqued:longjob:state:"+uuid).Val(), "the state is cleared")
		require.Empty(t, run.Warning)
	})

	t.Run("an item within an item has steps of its own", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var done []string
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkEach(ctx, r, "outer", []string{"a", "b"}, func(ctx context.Context, o string) error {
				if err := r.WorkOnce(ctx, "open", func(context.Context) error { done = append(done, o+"open"); return nil }); err != nil {
					return err
				}
				return longjob.WorkEach(ctx, r, "inner", []int{1, 2}, func(_ context.Context, i int) error {
					done = append(done, fmt.Sprint(o, i))
					return nil
				})
			})
		}, quick())
		uuid := b.enqueue("L", nil)
		b.work("q", "low")
		require.Equal(t, []string{"aopen", "a1", "a2", "bopen", "b1", "b2"}, done)
		run := b.run(uuid)
		require.EqualValues(t, 6, run.Units, "only the units that hold no others count")
		require.Equal(t, []string{"outer"}, names(run.Steps))
	})

	t.Run("iterators, channels, sources that know where to begin, and trees", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var done []string
		var asked []int
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			note := func(_ context.Context, s string) error { done = append(done, s); return nil }
			if err := longjob.WorkSeq(ctx, r, "seq", 0, slices.Values([]string{"s1", "s2"}), note); err != nil {
				return err
			}
			ch := make(chan string, 2)
			ch <- "c1"
			ch <- "c2"
			close(ch)
			if err := longjob.WorkChan(ctx, r, "chan", 2, ch, note); err != nil {
				return err
			}
			err := longjob.WorkAfter(ctx, r, "after", 0, func(_ context.Context, after *int) iter.Seq2[int, error] {
				from := 10
				if after != nil {
					from = *after + 1
				}
				asked = append(asked, from)
				return func(yield func(int, error) bool) {
					for i := from; i < 12; i++ {
						if !yield(i, nil) {
							return
						}
					}
				}
			}, func(_ context.Context, i int) error { return note(ctx, fmt.Sprint(i)) })
			if err != nil {
				return err
			}
			tree := map[string]any{"b": map[string]any{"y": 1, "x": 2}, "a": 3}
			return longjob.WorkTree(ctx, r, "tree", tree, func(_ context.Context, path []string, leaf any) error {
				return note(ctx, strings.Join(path, "/")+"="+fmt.Sprint(leaf))
			})
		}, quick())
		b.enqueue("L", nil)
		b.work("q", "low")
		require.Equal(t, []string{"s1", "s2", "c1", "c2", "10", "11", "a=3", "b/x=2", "b/y=1"}, done)
		require.Equal(t, []int{10, 10, 11}, asked, "what is done is not read again")
	})

	t.Run("units, callbacks and messages", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		ends, third := 0, 0
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			r.AtSliceEnd(func(context.Context) error { ends++; return longjob.SetState(r, "ends", ends) })
			r.EveryUnits(3, func(context.Context) error { third++; return nil })
			for {
				n, err := longjob.State(r, "n", 0)
				if err != nil || n == 7 {
					return err
				}
				r.Message(fmt.Sprintf("at %d", n))
				err = r.WorkUnit(ctx, func(context.Context) error { return longjob.SetState(r, "n", n+1) })
				if err != nil {
					return err
				}
			}
		}, longjob.Options{Queue: "q", MaxUnits: 2})
		uuid := b.enqueue("L", nil)
		b.work("q")
		run := b.run(uuid)
		require.EqualValues(t, 7, run.Units)
		require.Equal(t, 4, run.Slices)
		require.Equal(t, 4, ends)
		require.Equal(t, 2, third)
		require.Equal(t, "at 6", run.Message)
	})
}

func names(steps []longjob.Step) (names []string) {
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

func TestState(t *testing.T) {
	t.Parallel()
	t.Run("what a unit has set counts if it has ended well", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var seen []int
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			err := r.WorkUnit(ctx, func(context.Context) error {
				_ = longjob.SetState(r, "n", 1)
				n, _ := longjob.State(r, "n", 0)
				seen = append(seen, n)
				return errors.New("no")
			})
			if err == nil {
				return errors.New("the unit's error is lost")
			}
			n, err := longjob.State(r, "n", 0)
			seen = append(seen, n)
			return err
		}, longjob.Options{Queue: "q"})
		uuid := b.enqueue("L", nil)
		b.work("q")
		require.Equal(t, []int{1, 0}, seen)
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
	})

	t.Run("values are typed, computed once, and cleared", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		computed, slices := 0, 0
		type at struct{ Row int }
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			slices++
			v, err := longjob.StateOnce(r, "at", func() (at, error) { computed++; return at{7}, nil })
			if err != nil || v.Row != 7 {
				return fmt.Errorf("%v %w", v, err)
			}
			if slices == 1 {
				if err := longjob.SetState(r, "gone", true); err != nil {
					return err
				}
			} else if v, _ := longjob.State(r, "gone", false); v != (slices == 2) {
				return fmt.Errorf("slice %d: %v", slices, v)
			}
			if slices == 2 {
				if err := longjob.ClearState(r, "gone"); err != nil {
					return err
				}
			}
			return longjob.WorkEach(ctx, r, "e", []int{1, 2, 3}, func(context.Context, int) error { return nil })
		}, quick())
		uuid := b.enqueue("L", nil)
		b.work("q", "low")
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status, b.run(uuid).Error)
		require.Equal(t, 1, computed)
		require.Equal(t, 3, slices)
	})

	t.Run("too much of it is refused", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(_ context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.SetState(r, "much", strings.Repeat("x", 2000))
		}, longjob.Options{Queue: "q", StateLimit: 1000, Retries: -1})
		uuid := b.enqueue("L", nil)
		b.work("q")
		run := b.run(uuid)
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "the limit is 1000")
	})
}

func TestEnds(t *testing.T) {
	t.Parallel()
	t.Run("a slice whose end was swallowed is taken as ended, and the program is told", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		slices := 0
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			slices++
			_ = longjob.WorkEach(ctx, r, "e", []int{1, 2, 3}, func(context.Context, int) error { return nil })
			return nil
		}, quick())
		uuid := b.enqueue("L", nil)
		b.work("q", "low")
		require.Equal(t, 3, slices)
		require.Contains(t, b.run(uuid).Warning, "return what the runner returns")
	})

	t.Run("a failed run goes on from where it was, and then no more", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var done []int
		healed := false
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2, 3}, func(_ context.Context, i int) error {
				done = append(done, i)
				if i == 2 && !healed {
					return errors.New("two")
				}
				return nil
			})
		}, longjob.Options{Queue: "q", Retries: 2, RetryAfter: time.Millisecond})
		uuid := b.enqueue("L", nil)
		for b.run(uuid).Status != longjob.StatusFailed {
			b.work("q")
			_, err := b.store.MoveDue(t.Context(), "", nil)
			require.NoError(t, err)
		}
		require.Equal(t, []int{1, 2, 2, 2}, done)
		run := b.run(uuid)
		require.Equal(t, 3, run.Failures)
		require.Equal(t, "two", run.Error)
		require.Empty(t, b.redis.LRange(t.Context(), b.ns+":failed", 0, -1).Val())
		healed = true
		require.NoError(t, b.Requeue(t.Context(), uuid))
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, []int{1, 2, 2, 2, 2, 3}, done)
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
		require.ErrorIs(t, b.Requeue(t.Context(), uuid), longjob.ErrOver)
	})

	t.Run("panics, ended goroutines and arguments that do not fit fail the run alone", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		o := longjob.Options{Queue: "q", Retries: -1}
		longjob.Register(b.h, "Panic", func(context.Context, *longjob.Runner, string) error { panic("ouch") }, o)
		longjob.Register(b.h, "Exit", func(context.Context, *longjob.Runner, string) error { goexit(); return nil }, o)
		longjob.Register(b.h, "Args", func(context.Context, *longjob.Runner, int) error { return nil }, o)
		for class, want := range map[string]string{"Panic": "panic: ouch", "Exit": "Goexit", "Args": "arguments of Args"} {
			uuid := b.enqueue(class, "text")
			require.Equal(t, 1, b.work("q"), class)
			require.Equal(t, longjob.StatusFailed, b.run(uuid).Status, class)
			require.Contains(t, b.run(uuid).Error, want)
		}
	})

	t.Run("a process that leaves ends the slice at the next unit", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var done []int
		var k *taken
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2, 3}, func(_ context.Context, i int) error {
				if done = append(done, i); i == 2 {
					k.leave()
				}
				return nil
			})
		}, longjob.Options{Queue: "q", Slice: time.Hour})
		uuid := b.enqueue("L", nil)
		k = b.take("q")
		require.NoError(t, k.perform())
		require.Equal(t, []int{1, 2}, done)
		require.Equal(t, longjob.StatusQueued, b.run(uuid).Status)
		k.complete(nil)
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, []int{1, 2, 3}, done)
	})

	t.Run("a job that is killed goes on elsewhere and is not a failure", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var done []int
		killed := false
		var k *taken
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2, 3}, func(ctx context.Context, i int) error {
				if i == 2 && !killed {
					killed = true
					k.kill(resqued.ErrKilled)
					<-ctx.Done()
					return ctx.Err()
				}
				done = append(done, i)
				return nil
			})
		}, longjob.Options{Queue: "q"})
		uuid := b.enqueue("L", nil)
		k = b.take("q")
		err := k.perform()
		var requeue *resqued.RequeueError
		require.ErrorAs(t, err, &requeue)
		k.complete(err)
		require.Equal(t, longjob.StatusQueued, b.run(uuid).Status)
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, []int{1, 2, 3}, done)
		require.Zero(t, b.run(uuid).Deaths)
	})

	t.Run("a run that is cancelled saves nothing more and does not go on", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var uuid string
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2}, func(_ context.Context, i int) error {
				if i == 2 {
					return errors.New("not reached")
				}
				require.ErrorIs(t, b.Cancel(ctx, uuid), longjob.ErrEnding)
				require.ErrorIs(t, b.Requeue(ctx, uuid), longjob.ErrEnding)
				return nil
			})
		}, longjob.Options{Queue: "q"})
		uuid = b.enqueue("L", nil)
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, longjob.StatusCancelled, b.run(uuid).Status)
		require.Zero(t, b.run(uuid).Units)
		require.ErrorIs(t, b.Cancel(t.Context(), uuid), longjob.ErrOver)
		require.ErrorIs(t, b.Cancel(t.Context(), "nobody"), longjob.ErrNotFound)
	})

	t.Run("the context of a slice ends soon after its run was cancelled", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		begun := make(chan struct{})
		longjob.Register(b.h, "L", func(ctx context.Context, _ *longjob.Runner, _ struct{}) error {
			close(begun)
			<-ctx.Done()
			return context.Cause(ctx)
		}, longjob.Options{Queue: "q", CheckIn: 20 * time.Millisecond})
		uuid := b.enqueue("L", nil)
		k := b.take("q")
		result := make(chan error, 1)
		go func() { result <- k.perform() }()
		<-begun
		require.ErrorIs(t, b.Cancel(t.Context(), uuid), longjob.ErrEnding)
		err := <-result
		require.ErrorIs(t, err, resqued.Discard)
		k.complete(err)
	})
}
