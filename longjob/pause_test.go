//go:build unix

package longjob_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/longjob"
)

func TestPause(t *testing.T) {
	t.Parallel()
	// counting is a class of five units that reports each of them.
	counting := func(b *bed, o longjob.Options, each func(n int)) *[]int {
		var done []int
		longjob.Register(b.h, "L", func(ctx context.Context, r *longjob.Runner, _ int) error {
			return longjob.WorkEach(ctx, r, "e", []int{1, 2, 3, 4, 5}, func(_ context.Context, n int) error {
				done = append(done, n)
				each(n)
				return nil
			})
		}, o)
		return &done
	}

	t.Run("a slice ends before its next unit, and the run goes on from there", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		uuid := ""
		done := counting(b, longjob.Options{Queue: "q", RequeueQueue: "low", Slice: time.Hour}, func(n int) {
			if n == 2 {
				require.ErrorIs(t, b.Pause(t.Context(), uuid), longjob.ErrEnding)
				run := b.run(uuid)
				require.Equal(t, longjob.StatusRunning, run.Status)
				require.False(t, run.Paused.IsZero())
			}
		})
		uuid = b.enqueue("L", 1)
		b.work("q", "low")
		require.Equal(t, []int{1, 2}, *done)
		require.Equal(t, longjob.StatusPaused, b.run(uuid).Status)
		require.NoError(t, b.Pause(t.Context(), uuid), "again")
		res, err := b.EnqueueUnique(t.Context(), "L", 1)
		require.NoError(t, err)
		require.Equal(t, longjob.Result{UUID: uuid, Outcome: longjob.OutcomeExisting}, res)
		require.ErrorIs(t, b.Requeue(t.Context(), uuid), longjob.ErrNotOver)
		runs, err := b.List(t.Context(), longjob.Filter{Status: longjob.StatusPaused})
		require.NoError(t, err)
		require.Len(t, runs, 1)
		counts, err := b.long.Statuses(t.Context(), 10)
		require.NoError(t, err)
		require.EqualValues(t, 1, counts.Runs["paused"])

		require.NoError(t, b.Resume(t.Context(), uuid))
		require.ErrorIs(t, b.Resume(t.Context(), uuid), longjob.ErrNotPaused)
		b.work("q", "low")
		require.Equal(t, []int{1, 2, 3, 4, 5}, *done)
		require.Equal(t, longjob.StatusCompleted, b.run(uuid).Status)
		require.ErrorIs(t, b.Pause(t.Context(), uuid), longjob.ErrOver)
	})

	t.Run("one that waits does not begin, and is not taken for lost", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		done := counting(b, quick(), func(int) {})
		uuid := b.enqueue("L", 1)
		require.NoError(t, b.Pause(t.Context(), uuid))
		require.Equal(t, 1, b.work("q", "low"), "its payload comes to nothing")
		require.Empty(t, *done)
		s := longstore.NewSweeper(b.long, zap.NewNop(), longstore.Limits{})
		for range 3 {
			require.NoError(t, s.Sweep(t.Context()))
		}
		require.Zero(t, b.work("q", "low"))
		require.Equal(t, longjob.StatusPaused, b.run(uuid).Status)
		require.NoError(t, b.Cancel(t.Context(), uuid))
		require.Equal(t, longjob.StatusCancelled, b.run(uuid).Status)
		require.ErrorIs(t, b.Resume(t.Context(), uuid), longjob.ErrOver)
		require.NoError(t, b.Requeue(t.Context(), uuid), "it goes on as any that was cancelled")
		b.work("q", "low")
		require.Len(t, *done, 5)
	})

	t.Run("its process dies", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, int) error { return b.dies() }, longjob.Options{Queue: "q"})
		uuid := b.enqueue("L", 1)
		k := b.take("q")
		result := make(chan error, 1)
		go func() { result <- k.perform() }()
		<-b.crashed
		require.ErrorIs(t, b.Pause(t.Context(), uuid), longjob.ErrEnding)
		k.die()
		b.work("q")
		run := b.run(uuid)
		require.Equal(t, longjob.StatusPaused, run.Status)
		require.Equal(t, 1, run.Deaths)
		require.Zero(t, b.redis.LLen(t.Context(), b.ns+":queue:q").Val())
		b.buried <- struct{}{}
		require.Error(t, <-result)
	})

	t.Run("another run of its tenant has its turn meanwhile", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		o := quick()
		o.TenantSlices = 1
		done := counting(b, o, func(int) {})
		var uuids []string
		for n := range 3 {
			res, err := b.Enqueue(t.Context(), "L", n, longjob.Tenant("a"))
			require.NoError(t, err)
			uuids = append(uuids, res.UUID)
		}
		require.NoError(t, b.Pause(t.Context(), uuids[0]), "its payload waits")
		require.NoError(t, b.Pause(t.Context(), uuids[2]), "it stands in line")
		b.work("q", "low")
		require.Len(t, *done, 5)
		require.Equal(t, longjob.StatusCompleted, b.run(uuids[1]).Status)
		require.NoError(t, b.Resume(t.Context(), uuids[2]))
		require.NoError(t, b.Resume(t.Context(), uuids[0]))
		b.work("q", "low")
		require.Len(t, *done, 15)
	})
}

func TestRefusedIsShown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, int) error { return nil }, longjob.Options{Queue: "q"})
	uuid := b.enqueue("L", 1)
	refuse := func(slice longstore.Slice) error { return b.long.Refuse(t.Context(), slice) }
	slice := longstore.Slice{UUID: uuid, Number: 1, Class: "L", Run: longstore.Slice{}.Run}
	slice.Run.Proc, slice.Run.Token = "stranger", "t"
	for range 2 {
		require.NoError(t, refuse(slice))
	}
	run := b.run(uuid)
	require.Equal(t, 2, run.Refused)
	require.Contains(t, run.Warning, `knows class "L"`)
	require.Contains(t, run.Warning, "stranger")
	other := slice
	other.Class = "M"
	require.ErrorIs(t, refuse(other), longstore.ErrGone)
	other = slice
	other.Number = 2
	require.ErrorIs(t, refuse(other), longstore.ErrStale)
	b.work("q")
	run = b.run(uuid)
	require.Zero(t, run.Refused, "one has taken it")
	require.Empty(t, run.Warning)
	require.ErrorIs(t, refuse(slice), longstore.ErrOver)
}

func TestTick(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	longjob.Register(b.h, "L", func(context.Context, *longjob.Runner, struct{ Name, How string }) error { return nil }, longjob.Options{Queue: "q"})
	r := longjob.Recurring{Interval: time.Hour, Args: []any{"deep"}, Each: func(context.Context) ([]longjob.Subject, error) {
		return []longjob.Subject{{Args: resqued.Args{[]byte(`"north"`)}}}, nil
	}}
	require.NoError(t, b.Tick(t.Context(), "L", r))
	require.NoError(t, b.Tick(t.Context(), "L", r), "too early for another one")
	runs, err := b.List(t.Context(), longjob.Filter{})
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.Equal(t, `["north","deep"]`, runs[0].Args.String())
	b.work("q")
	require.Equal(t, longjob.StatusCompleted, b.run(runs[0].UUID).Status)
	require.Error(t, b.Tick(t.Context(), "L", longjob.Recurring{}))
	require.ErrorIs(t, b.Tick(t.Context(), "M", r), longjob.ErrNoQueue)
}
