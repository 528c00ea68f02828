//go:build unix

package longjob_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

func goexit() { runtime.Goexit() }

func TestDeaths(t *testing.T) {
	t.Parallel()
	t.Run("a slice that was believed to be dead cannot save", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		stopped, woken := make(chan struct{}), make(chan struct{})
		var mu sync.Mutex
		var fences []int64
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			mu.Lock()
			fences = append(fences, r.Fence())
			first := len(fences) == 1
			mu.Unlock()
			return longjob.WorkEach(ctx, r, "e", []string{"a", "b"}, func(_ context.Context, s string) error {
				if first && s == "b" {
					close(stopped)
					<-woken
					return longjob.SetState(r, "who", "the dead")
				}
				return longjob.SetState(r, "who", "the living")
			})
		}, longjob.Options{Queue: "q", Retries: -1, Keep: time.Hour})
		uuid := b.enqueue("L", nil)
		dead := b.take("q")
		result := make(chan error, 1)
		go func() { result <- dead.perform() }()
		<-stopped
		dead.die()
		alive := b.take("q")
		require.NotNil(t, alive)
		require.NoError(t, alive.perform())
		alive.complete(nil)
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
		close(woken)
		err := <-result
		var requeue *resqued.RequeueError
		require.ErrorAs(t, err, &requeue, "its payload is nobody's any more")
		require.Less(t, fences[0], fences[1])
		require.EqualValues(t, 2, b.run(uuid).Units)
		require.Equal(t, 2, len(fences))
		require.Nil(t, b.take("q"))
	})

	t.Run("only the unit that was not saved is done again", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var done []int
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2, 3, 4}, func(ctx context.Context, i int) error {
				done = append(done, i)
				if i == 3 && len(done) == 3 {
					return b.dies()
				}
				return nil
			})
		}, longjob.Options{Queue: "q", Slice: time.Hour})
		uuid := b.enqueue("L", nil)
		b.crash("q")
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, []int{1, 2, 3, 3, 4}, done)
		run := b.run(uuid)
		require.Equal(t, longjob.StatusCompleted, run.Status)
		require.Equal(t, 1, run.Slice, "it is the same slice again")
	})

	t.Run("deaths without progress end the run", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		runs := 0
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			if err := r.WorkOnce(ctx, "a", func(context.Context) error { return nil }); err != nil {
				return err
			}
			runs++
			return b.dies()
		}, longjob.Options{Queue: "q", MaxDeaths: 2})
		uuid := b.enqueue("L", nil)
		for range 3 { // the first death comes with progress
			b.crash("q")
		}
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, 3, runs)
		run := b.run(uuid)
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "3 worker processes died with it")
		require.Empty(t, b.redis.LRange(t.Context(), b.ns+":failed", 0, -1).Val())
	})

	t.Run("deaths with progress between them do not", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			for i := range 5 {
				if err := r.WorkOnce(ctx, string(rune('a'+i)), func(context.Context) error { return nil }); err != nil {
					return err
				}
				died, err := longjob.State(r, "died", 0)
				if err != nil {
					return err
				}
				if died == i {
					// Saved, so the next slice gets one step further.
					if err := r.WorkOnce(ctx, "note"+string(rune('a'+i)), func(context.Context) error { return longjob.SetState(r, "died", i+1) }); err != nil {
						return err
					}
					return b.dies()
				}
			}
			return nil
		}, longjob.Options{Queue: "q", MaxDeaths: 1})
		uuid := b.enqueue("L", nil)
		for range 5 {
			b.crash("q")
		}
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status, b.run(uuid).Error)
	})

	t.Run("payloads of other slices, and second ones, come to nothing", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		units := 0
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2, 3}, func(context.Context, int) error { units++; return nil })
		}, longjob.Options{Queue: "q", MaxUnits: 1})
		uuid := b.enqueue("L", nil)
		k := b.take("q")
		second := string(k.reserved.Payload)
		require.NoError(t, b.redis.RPush(t.Context(), b.ns+":queue:q", second, second).Err())
		other := b.take("q")
		require.Nil(t, other, "the job lock keeps it away")
		require.NoError(t, k.perform())
		// Its process dies after the end of the slice and before the end of its record.
		k.die()
		stale := b.take("q")
		err := stale.perform()
		require.ErrorIs(t, err, resqued.Discard)
		stale.complete(err)
		require.Equal(t, 1, units, "its slice has ended")
		require.NoError(t, b.redis.RPush(t.Context(), b.ns+":queue:q", `{"class":"L","args":["none"]}`).Err())
		b.work("q")
		require.Equal(t, 3, units)
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
	})

	t.Run("a lost lock means that nothing is saved and the slice runs again", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var k *taken
		tries := 0
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ struct{}) error {
			return r.WorkOnce(ctx, "a", func(ctx context.Context) error {
				if tries++; tries == 1 {
					k.kill(resqued.ErrLockLost)
					return context.Cause(ctx)
				}
				return nil
			})
		}, longjob.Options{Queue: "q"})
		uuid := b.enqueue("L", nil)
		k = b.take("q")
		err := k.perform()
		var requeue *resqued.RequeueError
		require.ErrorAs(t, err, &requeue)
		k.complete(err)
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
	})

	t.Run("a named lock is one unit's at a time, and free when its holder is dead", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		inside := make(chan string)
		var last string
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, name string) error {
			return r.CriticalUnit(ctx, "disk", func(ctx context.Context) error {
				if name == "first" {
					inside <- name
					<-ctx.Done()
					return ctx.Err()
				}
				last = name
				return nil
			})
		}, longjob.Options{Queue: "q", Slice: time.Millisecond})
		b.enqueue("L", "first")
		second := b.enqueue("L", "second")
		first := b.take("q")
		result := make(chan error, 1)
		go func() { result <- first.perform() }()
		<-inside
		waits := b.take("q")
		require.NoError(t, waits.perform(), "it gives up its slice while it waits")
		waits.complete(nil)
		require.Equal(t, longjob.StatusQueued, b.run(second).Status)
		require.Empty(t, last)
		first.die()
		k := b.take("q") // the first one, at the head
		k.die()
		require.NoError(t, b.redis.LRem(t.Context(), b.ns+":queue:q", 1, k.reserved.Payload).Err())
		b.work("q")
		require.Equal(t, "second", last)
		first.kill(errCrash)
		require.Error(t, <-result)
	})
}

var errCrash = errors.New("a crash")

// dies ends the process in the middle of the function that calls it; see crash.
func (b *bed) dies() error {
	b.crashed <- struct{}{}
	<-b.buried
	return errCrash
}

// crash takes a slice and runs it until its process dies. Whatever its code does afterwards is
// too late.
func (b *bed) crash(queues ...string) {
	b.t.Helper()
	k := b.take(queues...)
	require.NotNil(b.t, k)
	result := make(chan error, 1)
	go func() { result <- k.perform() }()
	<-b.crashed
	k.die()
	b.buried <- struct{}{}
	var requeue *resqued.RequeueError
	require.ErrorAs(b.t, <-result, &requeue)
}
