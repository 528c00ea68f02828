package view_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

func TestLongJobs(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		c := longjob.ClientFrom(longstore.New(f.store.Redis()).InContext(context.Background()), resqued.New())
		var ids []string
		for _, shop := range []string{"north", "south", "west"} {
			res, err := c.Enqueue(ctx, "Migrate", []any{shop}, longjob.Queue("q"))
			require.NoError(f, err)
			ids = append(ids, res.UUID)
		}
		require.NoError(f, c.Cancel(ctx, ids[0]))

		runs, more, err := view.LongJobs(ctx, c, longjob.Filter{Limit: 10})
		require.NoError(f, err)
		require.False(f, more)
		require.Len(f, runs, 3)
		require.Equal(f, ids[0], runs[2].UUID, "those that have ended are last")
		require.Equal(f, longjob.StatusCancelled, runs[2].Status)
		require.Equal(f, longjob.StatusQueued, runs[0].Status)
		require.NotNil(f, runs[2].Ended)
		require.Nil(f, runs[0].Ended)
		require.NotNil(f, runs[0].Created)
		require.NotNil(f, runs[0].Steps)
		require.Contains(f, []json.RawMessage{json.RawMessage(`["south"]`), json.RawMessage(`["west"]`)}, runs[0].Args)

		some, more, err := view.LongJobs(ctx, c, longjob.Filter{Limit: 1, Status: longjob.StatusQueued})
		require.NoError(f, err)
		require.True(f, more)
		require.Len(f, some, 1)

		for _, name := range []string{ids[1], ids[1][:13]} {
			run, err := view.FindLongJob(ctx, c, name)
			require.NoError(f, err)
			require.Equal(f, ids[1], run.UUID)
		}
		_, err = view.FindLongJob(ctx, c, "zz")
		requireNotFound(f.T, err, "long job", "zz", ids...)
		_, err = view.FindLongJob(ctx, c, "")
		var several *view.AmbiguousError
		require.ErrorAs(f, err, &several)
		require.ElementsMatch(f, ids, several.Matches)
	})
}

func TestLongJobSteps(t *testing.T) {
	t.Parallel()
	done := longjob.Step{Name: "plan", Done: 1, Total: 1, Milliseconds: 900, Finished: true}
	middle := longjob.Step{Name: "send", Done: 100, Total: 400, Milliseconds: 50000}
	for name, c := range map[string]struct {
		run  longjob.Run
		step string
		left float64 // seconds; 0 = not known
	}{
		"none":        {longjob.Run{Status: longjob.StatusRunning}, "", 0},
		"in one":      {longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{done, middle}}, "send", 150},
		"between two": {longjob.Run{Status: longjob.StatusRunning, Steps: []longjob.Step{done}}, "plan", 0},
		"over":        {longjob.Run{Status: longjob.StatusFailed, Steps: []longjob.Step{middle}}, "send", 0},
	} {
		v := view.NewLongJob(t.Context(), c.run)
		step, ok := v.Step()
		require.Equal(t, c.step, step.Name, name)
		require.Equal(t, c.step != "", ok, name)
		if c.left == 0 {
			require.Nil(t, v.ETA, name)
			continue
		}
		require.InDelta(t, c.left, *v.ETA, 1, name)
	}
}

func TestRecurringJobs(t *testing.T) {
	views(t, func(f *fixture) {
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		f.do("SADD", "resqued:longjob:recurring", "Sweep", "Forgotten")
		f.do("HSET", "resqued:longjob:recur:Sweep", "interval", 3600000, "every", 60000, "subjects", 12, "backlog", 3, "started", 2, "waiting", 1,
			"paused", 1, "error", "boom", "at", at.UnixMilli())
		all, err := view.RecurringJobs(f.Context(), longstore.New(f.store.Redis()))
		require.NoError(f, err)
		last := "2026-01-02T03:04:05Z"
		require.Len(f, all, 1)
		require.True(f, at.Equal(all[0].Last))
		all[0].Last = time.Time{}
		require.Equal(f, view.Recurring{
			Class: "Sweep", IntervalS: 3600, EveryS: 60, Subjects: 12, Backlog: 3, Started: 2, Waiting: 1, Paused: true, Error: "boom", LastTick: &last,
		}, all[0])
	})
}
