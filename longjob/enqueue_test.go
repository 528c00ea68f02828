//go:build unix

package longjob_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
)

// atOnce calls fn from many goroutines, and counts the outcomes.
func atOnce(t *testing.T, n int, fn func() (longjob.Result, error)) (outcomes map[longjob.Outcome]int, uuids map[string]int) {
	t.Helper()
	var mu sync.Mutex
	outcomes, uuids = map[longjob.Outcome]int{}, map[string]int{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range n / 50 {
				res, err := fn()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				outcomes[res.Outcome]++
				uuids[res.UUID]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return outcomes, uuids
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	t.Run("a thousand at once make one run", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		runs := 0
		longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, int) error { runs++; return nil }, longjob.Options{Queue: "q"})
		outcomes, uuids := atOnce(t, 1000, func() (longjob.Result, error) { return b.EnqueueUnique(t.Context(), "L", 1) })
		require.Equal(t, map[longjob.Outcome]int{longjob.OutcomeNew: 1, longjob.OutcomeExisting: 999}, outcomes)
		require.Len(t, uuids, 1)
		require.EqualValues(t, 1, b.redis.LLen(t.Context(), b.ns+":queue:q").Val())
		require.Equal(t, 1, b.work("q"))
		require.Equal(t, 1, runs)
		res, err := b.EnqueueUnique(t.Context(), "L", 1)
		require.NoError(t, err)
		require.Equal(t, longjob.OutcomeNew, res.Outcome, "the other is over")
		res, err = b.EnqueueUnique(t.Context(), "L", 2)
		require.NoError(t, err)
		require.Equal(t, longjob.OutcomeNew, res.Outcome, "other arguments")
	})

	t.Run("a thousand at once during a run make one more", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		begun, goOn := make(chan struct{}, 1), make(chan struct{})
		longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, int) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}, longjob.Options{Queue: "q"})
		uuid := b.enqueue("L", 1)
		k := b.take("q")
		result := make(chan error, 1)
		go func() { result <- k.perform() }()
		<-begun
		outcomes, uuids := atOnce(t, 1000, func() (longjob.Result, error) { return b.EnqueueDebounce(t.Context(), "L", 1) })
		require.Equal(t, map[longjob.Outcome]int{longjob.OutcomeRerun: 1000}, outcomes)
		require.Equal(t, map[string]int{uuid: 1000}, uuids)
		require.True(t, b.run(uuid).Rerun)
		close(goOn)
		require.NoError(t, <-result)
		k.complete(nil)
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
		require.Equal(t, 1, b.work("q"), "one more, and no more")
		<-begun
		runs, err := b.List(t.Context(), longjob.Filter{Class: "L"})
		require.NoError(t, err)
		require.Len(t, runs, 2)
	})

	t.Run("a run that has not begun is not followed by another", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ int) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2}, func(context.Context, int) error { return nil })
		}, longjob.Options{Queue: "q", MaxUnits: 1})
		debounce := func() longjob.Outcome {
			res, err := b.EnqueueDebounce(t.Context(), "L", 1)
			require.NoError(t, err)
			return res.Outcome
		}
		require.Equal(t, longjob.OutcomeNew, debounce())
		require.Equal(t, longjob.OutcomeExisting, debounce())
		k := b.take("q")
		require.Equal(t, longjob.OutcomeExisting, debounce(), "a worker process has it, and its code has not begun")
		require.NoError(t, k.perform())
		k.complete(nil)
		require.Equal(t, longjob.OutcomeRerun, debounce(), "its second slice waits")
		require.Equal(t, 3, b.work("q"))
		runs, err := b.List(t.Context(), longjob.Filter{Class: "L"})
		require.NoError(t, err)
		require.Len(t, runs, 2)
	})

	t.Run("arguments that another program writes otherwise are the same", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, string) error { return nil }, longjob.Options{Queue: "q"})
		uuid := b.enqueue("L", "Köln")
		require.NoError(t, b.redis.SAdd(t.Context(), b.ns+":queues", "in").Err())
		require.NoError(t, b.redis.RPush(t.Context(), b.ns+":queue:in", `{"class":"L","args":[ "K\u00f6ln" ]}`).Err())
		require.Equal(t, 1, b.work("in"))
		require.EqualValues(t, 1, b.redis.LLen(t.Context(), b.ns+":queue:q").Val())
		require.Equal(t, longjob.StatusQueued, b.run(uuid).Status)
	})

	t.Run("a new run supersedes the older one", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var worked []string
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ int) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2}, func(context.Context, int) error {
				worked = append(worked, r.UUID())
				return nil
			})
		}, longjob.Options{Queue: "q", MaxUnits: 1})
		old := b.enqueue("L", 1)
		k := b.take("q")
		require.NoError(t, k.perform())
		k.complete(nil)
		fresh := b.enqueue("L", 1)
		b.work("q")
		require.Equal(t, []string{old, fresh, fresh}, worked)
		require.Equal(t, longjob.StatusSuperseded, b.run(old).Status)
		require.ErrorIs(t, b.Requeue(t.Context(), old), longjob.ErrOver)
	})

	t.Run("many at once", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, int) error { return nil }, longjob.Options{Queue: "q"})
		var list []any
		for i := range 450 {
			list = append(list, i%440)
		}
		results, err := b.EnqueueBulk(t.Context(), longjob.Unique, "L", list, longjob.Queue("other"))
		require.NoError(t, err)
		require.Len(t, results, 450)
		require.Equal(t, longjob.OutcomeExisting, results[449].Outcome)
		require.Equal(t, results[9].UUID, results[449].UUID)
		require.EqualValues(t, 440, b.redis.LLen(t.Context(), b.ns+":queue:other").Val())
		runs, err := b.List(t.Context(), longjob.Filter{Status: longjob.StatusQueued, Limit: 300})
		require.NoError(t, err)
		require.Len(t, runs, 300)
		require.NoError(t, b.Cancel(t.Context(), results[0].UUID))
		run, err := b.Wait(t.Context(), results[0].UUID)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusCancelled, run.Status)
	})

	t.Run("what cannot be enqueued", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		_, err := b.Enqueue(t.Context(), "Unknown", nil)
		require.ErrorIs(t, err, longjob.ErrNoQueue)
		_, err = b.Enqueue(t.Context(), "L", nil, longjob.Queue("q:start_at"))
		require.ErrorContains(t, err, `queue "q:start_at" cannot be used`)
		_, err = b.Enqueue(t.Context(), "L", nil, longjob.Queue("q"), longjob.RequeueQueue("q:uniqueue"))
		require.ErrorContains(t, err, `queue "q:uniqueue" cannot be used`)
		_, err = b.Enqueue(t.Context(), "", nil, longjob.Queue("q"))
		require.Error(t, err)
		_, err = b.Enqueue(t.Context(), "L", make(chan int), longjob.Queue("q"))
		require.Error(t, err)
		require.NoError(t, b.redis.Set(t.Context(), b.ns+":queue:text", "x", 0).Err())
		_, err = b.Enqueue(t.Context(), "L", nil, longjob.Queue("text"))
		require.ErrorContains(t, err, "is not a list")
		require.Empty(t, b.redis.Keys(t.Context(), b.ns+":resqued:longjob:*").Val(), "nothing was written")
	})
}

func TestForget(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, int) error { return nil }, longjob.Options{Queue: "q", Keep: time.Millisecond})
	uuid := b.enqueue("L", 1)
	kept := b.enqueue("L", 2)
	require.NoError(t, b.Cancel(t.Context(), kept))
	b.work("q")
	require.Eventually(t, func() bool {
		_, err := b.long.Forget(t.Context(), 10)
		require.NoError(t, err)
		_, err = b.Get(t.Context(), uuid)
		return err != nil
	}, patience, time.Millisecond)
	_, err := b.Get(t.Context(), uuid)
	require.ErrorIs(t, err, longjob.ErrNotFound)
	require.Equal(t, longjob.StatusCancelled, b.run(kept).Status)
	require.EqualValues(t, 1, b.redis.HLen(t.Context(), b.ns+":resqued:longjob:current").Val())
}

const patience = time.Minute
