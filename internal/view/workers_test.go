package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/view"
)

func TestWorkers(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		f.putMaster(map[string]string{"state": "running", "slots": "2", "threads": "4", "queues": "q,mail", "lease_ms": "3600000"})
		job := f.reserve(`{"class":"A","args":[1],"id":"abc"}`)
		f.reserve(`{"class":"A","args":[2]}`)
		const ruby, idle, ghost = "ruby:7:mail~2,x", "ruby:8:*", "gone~resqued:1.0.0-zz:q"
		f.do("SADD", "workers", ruby, idle, ghost)
		f.do("SET", "worker:"+ruby, `{"queue":"mail","run_at":"2026-01-02T03:04:05Z","payload":{"class":"R","args":["x"]}}`)

		all, err := view.Workers(ctx, f.store)
		require.NoError(f, err)
		var names, states []string
		for _, w := range all {
			names, states = append(names, w.Worker), append(states, w.State)
		}
		require.Equal(f, []string{ghost, "web-1:4700", ruby, idle}, names, "resqued's first, each kind by name")
		require.Equal(f, []string{view.WorkerGhost, "running", view.WorkerBusy, view.WorkerIdle}, states)

		ours := all[1]
		require.Equal(f, view.KindResqued, ours.Kind)
		require.Equal(f, 8, ours.Threads)
		require.Equal(f, 2, ours.Busy)
		require.Equal(f, "q,mail", ours.Queues)
		require.WithinDuration(f, time.Now(), ours.Beat, time.Minute)
		require.EqualValues(f, 4096, ours.RSS())
		require.Equal(f, 3, *ours.RecycleIn())
		require.Len(f, ours.Processes, 1)
		p := ours.Processes[0]
		require.Equal(f, 9120, p.PID)
		require.Equal(f, "running", p.State)
		ids := []string{p.Jobs[0].ID, p.Jobs[1].ID}
		require.Contains(f, ids, "abc")
		require.Equal(f, 3, p.Jobs[0].Thread)
		require.NotEmpty(f, job.Token)

		foreign := all[2]
		require.Equal(f, view.KindForeign, foreign.Kind)
		require.Equal(f, "R", foreign.Job.Class)
		require.Positive(f, foreign.Job.RunningS)
		require.Nil(f, foreign.RecycleIn())

		some, err := view.FindWorkers(all, []string{"ruby", idle})
		require.NoError(f, err)
		require.Equal(f, all[2:], some, "each once")
		_, err = view.FindWorkers(all, []string{"nope"})
		requireNotFound(f.T, err, "worker", "nope", ruby)
	})
}

// Redis returns the jobs of a process in any order.
func TestJobsOfAProcessByThread(t *testing.T) {
	views(t, func(f *fixture) {
		var wants []store.Want
		for _, thread := range []int{3, 0, 10, 7, 2, 1, 9} {
			f.push("q", fmt.Sprintf(`{"class":"A","args":[%d]}`, thread))
			wants = append(wants, store.Want{Token: redistest.Unique(), Worker: fmt.Sprintf("web-1~resqued:9120.0.%d-k2f9:q:,q", thread)})
		}
		reply, err := f.store.Exchange(f.Context(), store.ExchangeRequest{Proc: proc, Wants: wants, Queues: []store.Queue{{Name: "q"}}})
		require.NoError(f, err)
		require.Len(f, reply.Jobs, len(wants))

		for range 10 {
			all, err := view.Workers(f.Context(), f.store)
			require.NoError(f, err)
			var threads []int
			for _, job := range all[0].Processes[0].Jobs {
				threads = append(threads, job.Thread)
			}
			require.Equal(f, []int{0, 1, 2, 3, 7, 9, 10}, threads)
		}
	})
}

// A process that retires has the slot of its successor.
func TestProcessesOfASlotKeepTheirOrder(t *testing.T) {
	views(t, func(f *fixture) {
		for _, id := range []string{":0.9", ":0.7", ":0.8"} {
			require.NoError(f, f.store.Register(f.Context(), store.Registration{Proc: master + id, Info: map[string]string{"slot": "0"}}))
		}
		all, err := view.Workers(f.Context(), f.store)
		require.NoError(f, err)
		var ids []string
		for _, p := range all[0].Processes {
			ids = append(ids, p.Proc)
		}
		require.Equal(f, []string{proc, master + ":0.7", master + ":0.8", master + ":0.9"}, ids)
	})
}

func TestWorkersOfADeadMaster(t *testing.T) {
	views(t, func(f *fixture) {
		f.do("ZADD", "resqued:procs", 1, proc)
		all, err := view.Workers(f.Context(), f.store)
		require.NoError(f, err)
		require.Len(f, all, 1)
		require.Equal(f, view.WorkerStale, all[0].State, "what is left of it waits for its recovery")
		require.Equal(f, "q", all[0].Queues)
		require.Equal(f, 4, all[0].Threads)
	})
}
