package view_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

func TestJobs(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		first := f.reserve(`{"class":"A","args":[1],"id":"9f1c55d0a7b2c3d4e5f60718293a4b5c"}`)
		second := f.reserve(`{"class":"B","args":[2]}`)
		f.do("HSET", "resqued:proc:"+proc, store.InfoKilled, "x "+second.Token)
		const ruby = "ruby:7:mail"
		f.do("SADD", "workers", ruby)
		f.do("SET", "worker:"+ruby, `{"queue":"mail","run_at":"2026-01-02T03:04:05Z","payload":{"class":"R","args":["x"]}}`)

		jobs, err := view.Jobs(ctx, f.store)
		require.NoError(f, err)
		require.Len(f, jobs, 3)
		require.Equal(f, ruby, jobs[0].ID, "the one that runs longest is first")
		require.Equal(f, view.JobForeign, jobs[0].State)
		byClass := map[string]*view.Job{}
		for _, j := range jobs {
			byClass[j.Class] = j
		}
		a, b := byClass["A"], byClass["B"]
		require.Equal(f, view.JobRuns, a.State)
		require.Equal(f, "9f1c55d0a7b2", a.Short)
		require.Equal(f, "9f1c55d0a7b2c3d4e5f60718293a4b5c", a.Name)
		require.Equal(f, "q", a.Queue)
		require.Equal(f, worker, a.Worker)
		require.Empty(f, a.Payload)
		a.Detail()
		require.Equal(f, proc, a.Process)
		require.Equal(f, first.Token, a.Token)
		require.Equal(f, first.LockKey, a.Lock)
		require.Positive(f, a.Fence)
		require.JSONEq(f, `{"class":"A","args":[1],"id":"9f1c55d0a7b2c3d4e5f60718293a4b5c"}`, a.Payload)
		require.Equal(f, view.JobKilled, b.State, "it was told to stop")
		require.Equal(f, store.RunName{Proc: proc, Token: second.Token}, b.Run)
		require.Equal(f, b.Run.String(), b.ID)

		found, err := view.FindJobs(jobs, []string{"9f1c", a.ID, b.Short})
		require.NoError(f, err)
		require.Equal(f, []*view.Job{a, b}, found, "each once")
		_, err = view.FindJobs(jobs, []string{"zzzz"})
		requireNotFound(f.T, err, "running job", "zzzz", a.Short, b.Name)
		_, err = view.FindJobs(jobs, []string{proc})
		var several *view.AmbiguousJobError
		require.ErrorAs(f, err, &several)
		require.ElementsMatch(f, []*view.Job{a, b}, several.Jobs)

		for name, c := range map[string]struct {
			limit int
			pairs []string
			want  []*view.Job
			cut   bool
		}{
			"all":        {9, nil, jobs, false},
			"by queue":   {9, []string{"queue", "mail"}, jobs[:1], false},
			"by class":   {9, []string{"class", "A,none"}, []*view.Job{a}, false},
			"by age":     {9, []string{"until", "1h"}, jobs[:1], false},
			"the oldest": {1, nil, jobs[:1], true},
		} {
			picked, cut := view.Running(jobs, matching(f.T, filter.Running, c.pairs...), c.limit)
			require.Equal(f, c.want, picked, name)
			require.Equal(f, c.cut, cut, name)
		}

		f.do("ZADD", "resqued:procs", 1, proc)
		jobs, err = view.Jobs(ctx, f.store)
		require.NoError(f, err)
		require.Equal(f, []string{view.JobForeign, view.JobStale, view.JobStale}, []string{jobs[0].State, jobs[1].State, jobs[2].State})
		_, err = view.Jobs(cancelled(), f.store)
		require.Error(f, err)
	})
}
