package view_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history/queueage"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

func TestQueues(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		f.putMaster(map[string]string{"slots": "2", "threads": "4", "queues": "q:3,starved"})
		f.do("SADD", "workers", "ruby:7:starved,idle~2")
		f.do("SET", "worker:ruby:7:starved,idle~2", `{"queue":"starved","payload":{"class":"R","args":[]}}`)
		f.do("SADD", "queues", "broken", "empty")
		f.do("SET", "queue:broken", "x")
		f.reserve(`{"class":"A","args":[1]}`)
		f.push("q", fmt.Sprintf(`{"class":"B","args":[1,2],"enqueued_at":%d}`, time.Now().Add(-time.Hour).Unix()), "no job", `{"class":"C","args":[]}`)
		f.push("orphan", `{"class":"D","args":[]}`)
		f.push("starved", `{"class":"E","args":[]}`)
		f.do("HSET", "locket:queue_lock_counters", "starved", 1)
		f.push("paused", `{"class":"E","args":[]}`)
		_, _, err := f.store.Pause(ctx, "paused", store.PauseOptions{})
		require.NoError(f, err)

		queues, err := view.Queues(ctx, f.store)
		require.NoError(f, err)
		states, byName := map[string]string{}, map[string]*view.Queue{}
		var order []string
		for _, q := range queues {
			order = append(order, q.Queue)
			states[q.Queue], byName[q.Queue] = q.State, q
		}
		require.Equal(f, []string{"broken", "empty", "orphan", "paused", "q", "starved"}, order)
		require.Equal(f, map[string]string{
			"broken": view.QueueBroken, "empty": view.QueueIdle, "orphan": view.QueueOrphan, "paused": view.QueuePaused,
			"q": view.QueueRuns, "starved": view.QueueStarved,
		}, states)
		q := byName["q"]
		require.EqualValues(f, 3, *q.Size)
		require.Equal(f, 1, q.Busy)
		require.Equal(f, 1, q.Served)
		require.Equal(f, 3, *q.Cap)
		require.InDelta(f, 3600, *q.OldestS, 60)
		require.Equal(f, queueage.Exact, *q.OldestSource)
		require.Equal(f, 1, byName["starved"].Busy, "what a foreign worker says it works on")
		require.Nil(f, byName["starved"].Cap)
		require.Nil(f, byName["starved"].OldestS, "a plain payload does not tell, and nobody has looked")
		require.Nil(f, byName["broken"].Size)
		require.NotEmpty(f, byName["broken"].Problem)

		partial, err := q.ReadJobs(ctx, f.store, 0, 2)
		require.NoError(f, err)
		require.True(f, partial)
		require.Len(f, q.Jobs, 2)
		require.Equal(f, view.WaitingJob{Position: 1, Class: "B", Args: json.RawMessage("[1,2]")}, q.Jobs[0])
		require.NotEmpty(f, q.Jobs[1].Invalid)
		_, err = q.ReadJobs(ctx, f.store, 2, 2)
		require.NoError(f, err)
		require.Equal(f, []view.WaitingJob{{Position: 3, Class: "C", Args: json.RawMessage("[]")}}, q.Jobs)
		_, err = byName["broken"].ReadJobs(ctx, f.store, 0, 2)
		require.NoError(f, err)
		require.Empty(f, byName["broken"].Jobs)

		_, err = f.store.LookAtAges(ctx)
		require.NoError(f, err)
		promised := view.Promising(ctx, queueage.Promises{{Queue: "q", Within: time.Minute}, {Queue: "starved", Within: time.Hour}}.Of)
		late, err := view.Queues(promised, f.store, "starved", "q", "orphan")
		require.NoError(f, err)
		require.Equal(f, queueage.AtLeast, *late[0].OldestSource)
		require.Equal(f, "≥", late[0].OldestMark())
		require.Equal(f, []bool{false, true, false}, []bool{late[0].Late, late[1].Late, late[2].Late})
		require.Equal(f, []*int64{new(int64(3600)), new(int64(60)), nil}, []*int64{late[0].WithinS, late[1].WithinS, late[2].WithinS})
		found, err := view.Findings(promised, f.store, nil, view.Checks{})
		require.NoError(f, err)
		require.True(f, slices.ContainsFunc(found, func(x view.Finding) bool {
			return x.Code == view.CodeQueueLate && x.Text == "q: 3 jobs wait, and the first has waited for longer than promised"
		}), found)

		some, err := view.Queues(ctx, f.store, "starved", "q")
		require.NoError(f, err)
		require.Len(f, some, 2)
		require.Equal(f, "starved", some[0].Queue)
		_, err = view.Queues(ctx, f.store, "q", "nope")
		requireNotFound(f.T, err, "queue", "nope", "q", "orphan")
		_, err = view.Queues(cancelled(), f.store)
		require.Error(f, err)
	})
}
