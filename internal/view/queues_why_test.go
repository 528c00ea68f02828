package view_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/view"
)

func TestWhyAQueueDoesNotMove(t *testing.T) {
	const other = "web-2:0a1b2c3d:4711-55"
	running := map[string]string{"state": "running", "slots": "1", "threads": "4", "queues": "q,low,p*:1"}
	withState := func(state string) map[string]string {
		fields := map[string]string{}
		maps.Copy(fields, running)
		fields["state"] = state
		return fields
	}
	for name, c := range map[string]struct {
		prepare func(f *fixture)
		queue   string
		state   string
		why     string
		reason  store.Reason
	}{
		"a thread is free": {func(f *fixture) { f.push("low", `{"class":"A","args":[]}`) }, "low", view.QueueRuns, "", store.Free},
		"nothing waits":    {func(f *fixture) { f.busy(4) }, "q", view.QueueRuns, "", 0},
		"no thread is free": {func(f *fixture) {
			f.busy(4)
			f.push("low", `{"class":"A","args":[]}`)
		}, "low", view.QueueRuns, "no free thread: 4 of 4 are busy", store.Free},
		"another comes first": {func(f *fixture) {
			f.busy(4)
			f.push("q", `{"class":"A","args":[]}`, `{"class":"A","args":[1]}`)
			f.push("low", `{"class":"A","args":[]}`)
		}, "low", view.QueueRuns, "behind q with 2 jobs: no free thread", store.Free},
		"what is paused is in nobody's way": {func(f *fixture) {
			f.busy(4)
			f.push("q", `{"class":"A","args":[]}`)
			_, _, err := f.store.Pause(f.Context(), "q", store.PauseOptions{})
			require.NoError(f, err)
			f.push("low", `{"class":"A","args":[]}`)
		}, "low", view.QueueRuns, "no free thread: 4 of 4 are busy", store.Free},
		"a cap": {func(f *fixture) {
			f.busyIn("pics", 1)
			f.push("pics", `{"class":"A","args":[]}`)
		}, "pics", view.QueueRuns, "capped: 1 of 1 run", store.Free},
		"its daemon is paused": {func(f *fixture) {
			f.putMaster(withState("paused"))
			f.push("q", `{"class":"A","args":[]}`)
		}, "q", view.QueueRuns, "its daemon is paused", store.Free},
		"another daemon has a free thread": {func(f *fixture) {
			f.putMaster(withState("draining"))
			f.second(other, "q")
			f.push("q", `{"class":"A","args":[]}`)
		}, "q", view.QueueRuns, "", store.Free},
		"two daemons, two reasons": {func(f *fixture) {
			f.putMaster(withState("draining"))
			_, err := f.store.PutMaster(f.Context(), store.MasterInfo{ID: other, Fields: withState("paused"), TTL: time.Hour})
			require.NoError(f, err)
			f.push("q", `{"class":"A","args":[]}`)
		}, "q", view.QueueRuns, "its daemon is draining (web-1:4700); its daemon is paused (web-2:4711)", store.Free},
		"a worker in Ruby is idle": {func(f *fixture) {
			f.busy(4)
			f.do("SADD", "workers", "ruby:7:low")
			f.push("low", `{"class":"A","args":[]}`)
		}, "low", view.QueueRuns, "", store.Free},
		"workers in Ruby are busy": {func(f *fixture) {
			f.do("SADD", "workers", "ruby:7:theirs")
			f.do("SET", "worker:ruby:7:theirs", `{"queue":"theirs","payload":{"class":"R","args":[]}}`)
			f.push("theirs", `{"class":"A","args":[]}`)
		}, "theirs", view.QueueRuns, "no free worker: 1 of 1 are busy", store.Free},
		"paused by name": {func(f *fixture) {
			f.push("q", `{"class":"A","args":[]}`)
			_, _, err := f.store.Pause(f.Context(), "q", store.PauseOptions{})
			require.NoError(f, err)
		}, "q", view.QueuePaused, "paused", store.Paused},
		"paused with a reason": {func(f *fixture) {
			f.push("q", `{"class":"A","args":[]}`)
			_, _, err := f.store.Pause(f.Context(), "q", store.PauseOptions{By: "amy@web-1", Reason: "migration 4711"})
			require.NoError(f, err)
		}, "q", view.QueuePaused, "paused by amy@web-1: migration 4711", store.Paused},
		"all are paused": {func(f *fixture) {
			f.push("q", `{"class":"A","args":[]}`)
			f.do("SET", "pause-all-workers", "true")
			_, _, err := f.store.PauseAll(f.Context(), store.PauseOptions{})
			require.NoError(f, err)
		}, "q", view.QueuePaused, "all queues are paused; all workers are paused, Ruby's as well", store.Paused},
		"nobody works it": {func(f *fixture) { f.push("x", `{"class":"A","args":[]}`) }, "x", view.QueueOrphan, "no worker has it among its queues", store.Free},
		"locked":          {func(f *fixture) { f.lockmates(false) }, "q", view.QueueStarved, "waiting for locks: 1 job", store.Locked},
		"in a line":       {func(f *fixture) { f.lockmates(true) }, "q", view.QueueStarved, "waiting for locks: 1 job", store.Lined},
		"locked, as foreign workers say": {func(f *fixture) {
			f.push("q", `{"class":"A","args":[]}`)
			f.do("HSET", "locket:queue_lock_counters", "q", 3)
		}, "q", view.QueueStarved, "waiting for locks: 1 job", store.Free},
	} {
		t.Run(name, func(t *testing.T) {
			views(t, func(f *fixture) {
				f.do("SADD", "queues", "q")
				f.do("SADD", "workers", "web-1~resqued:9120.0.1-k2f9:q,low,p*:,q,low,p*")
				f.putMaster(running)
				c.prepare(f)
				queues, err := view.Queues(f.Context(), f.store, c.queue)
				require.NoError(f, err)
				require.Equal(f, c.state, queues[0].State)
				require.Equal(f, c.why, queues[0].Why)
				require.Equal(f, c.state == view.QueueOrphan, len(queues[0].Servers) == 0)
				reply, err := f.store.Poll(f.Context(), store.PollRequest{Fixed: []string{c.queue}})
				require.NoError(f, err)
				require.Equal(f, c.reason, reply.Reasons[c.queue])
			})
		})
	}
}

// busy starts jobs in queue q, busyIn in another.
func (f *fixture) busy(n int) { f.busyIn("q", n) }

func (f *fixture) busyIn(queue string, n int) {
	f.Helper()
	for i := range n {
		f.push(queue, fmt.Sprintf(`{"class":"Busy","args":[%d]}`, i))
		reply, err := f.store.Exchange(f.Context(), store.ExchangeRequest{
			Proc: proc, Wants: []store.Want{{Token: redistest.Unique(), Worker: worker}}, Queues: []store.Queue{{Name: queue}},
		})
		require.NoError(f, err)
		require.Len(f, reply.Jobs, 1)
	}
}

// lockmates starts a job of q and makes an equal one wait for its lock, in a line or in the queue.
func (f *fixture) lockmates(lined bool) {
	f.Helper()
	f.push("q", `{"class":"A","args":[]}`, `{"class":"A","args":[]}`)
	for range 2 {
		_, err := f.store.Exchange(f.Context(), store.ExchangeRequest{
			Proc: proc, Wants: []store.Want{{Token: redistest.Unique(), Worker: worker}}, Queues: []store.Queue{{Name: "q", Locked: true, Lined: lined}},
		})
		require.NoError(f, err)
	}
}

// second registers a process of another master that works a queue.
func (f *fixture) second(id, queue string) {
	f.Helper()
	_, err := f.store.PutMaster(f.Context(), store.MasterInfo{
		ID: id, Fields: map[string]string{"state": "running", "slots": "1", "threads": "2", "queues": queue}, TTL: time.Hour,
	})
	require.NoError(f, err)
	require.NoError(f, f.store.Register(f.Context(), store.Registration{
		Proc: id + ":0.1", Workers: []string{"web-2~resqued:9.0.0-k2f9:q:,q"},
		Info: map[string]string{"host": "web-2", "pid": "9", "slot": "0", "state": "running", "threads": "2"},
	}))
}
