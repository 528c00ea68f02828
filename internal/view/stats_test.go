package view_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

// fillTotals writes something of each kind.
func fillTotals(f *fixture) {
	f.putMaster(map[string]string{"slots": "2", "threads": "4", "queues": "q"})
	f.do("SADD", "workers", "ruby:7:mail", "ruby:8:mail")
	f.do("SET", "worker:ruby:7:mail", `{"queue":"mail","payload":{"class":"R","args":[]}}`)
	f.do("SET", "stat:processed", 1000)
	f.do("SET", "stat:failed", 7)
	f.reserve(`{"class":"A","args":[1]}`)
	f.push("mail", fmt.Sprintf(`{"class":"B","args":[1],"enqueued_at":%d}`, time.Now().Add(-time.Hour).Unix()), `{"class":"C","args":[]}`)
	f.push("old", `no job`)
	f.do("RPUSH", "resqued:suspects:old", "x")
	f.do("SET", "queue:broken", "x")
	f.do("SADD", "queues", "broken")
	_, _, err := f.store.Pause(f.Context(), "old", store.PauseOptions{})
	require.NoError(f, err)
	f.do("ZADD", "resqued:delayed", 4102444800000, "x")
	f.do("ZADD", "delayed_queue_schedule", 4102444800, "4102444800")
	f.do("RPUSH", "delayed:4102444800", "a", "b")
	f.do("RPUSH", "failed", "a", "b", "c")
	f.do("RPUSH", "resqued:passed:failed", "d")
	f.do("HSET", "resqued:parked", "id", "x")
	f.do("ZADD", "resqued:longjob:active", 1, "run")
}

func TestStats(t *testing.T) {
	views(t, func(f *fixture) {
		ctx, long := f.Context(), longstore.New(f.store.Redis())
		fillTotals(f)
		v, err := view.ReadStats(ctx, f.store, long)
		require.NoError(f, err)
		require.InDelta(f, 3600, *v.OldestS, 60)
		v.OldestS = nil
		at := v.At
		require.NotZero(f, at)
		v.At = time.Time{}
		require.Equal(f, &view.Stats{
			Processed: 1000, Failed: 7, Running: 2, Threads: 10, Daemons: 1, Processes: 1, Others: 2,
			Queues: 4, QueuesWaiting: 2, QueuesPaused: 1, Waiting: 4, Delayed: 3, Failures: 4, Parked: 1, LongJobs: 1,
		}, v)

		v.At = at.Add(-10 * time.Second)
		f.do("INCRBY", "stat:processed", 500)
		f.do("SET", "stat:failed", 0)
		later, err := v.Again(ctx, f.store)
		require.NoError(f, err)
		require.InDelta(f, 500 / *later.IntervalS, *later.ProcessedPerS, 1e-9)
		require.GreaterOrEqual(f, *later.IntervalS, 10.0)
		require.Nil(f, later.FailedPerS, "a counter that was set back has no rate")
		require.EqualValues(f, 2, later.Running)
	})
}

// commands counts what is sent to Redis.
type commands struct {
	redis.Hook
	trips, all int
	names      map[string]int
}

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(cmd)
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.note(cmds...)
		return next(ctx, cmds)
	}
}

func (c *commands) note(cmds ...redis.Cmder) {
	c.trips++
	c.all += len(cmds)
	for _, cmd := range cmds {
		c.names[cmd.Name()]++
	}
}

func TestLooksAreBounded(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		fillTotals(f)
		look := func(do func() error) *commands {
			c := &commands{names: map[string]int{}}
			s, err := store.Open(store.Options{URL: f.url, Namespace: f.ns})
			require.NoError(f, err)
			defer func() { require.NoError(f, s.Close()) }()
			s.Redis().Read.AddHook(c)
			old := f.store
			f.store = s
			require.NoError(f, do())
			f.store = old
			return c
		}
		stats := func() error {
			_, err := view.ReadStats(ctx, f.store, longstore.New(f.store.Redis()))
			return err
		}
		snap := func() error {
			_, err := view.Snap(ctx, f.store)
			return err
		}
		before, beforeSnap := look(stats), look(snap)
		require.Equal(f, 1, before.names["hgetall"], "of the master; none of jobs in flight: %v", before.names)
		require.Equal(f, 4, before.names["hmget"], "of counters, of lines, of turns and of ages, for the queues: %v", before.names)
		for i := range 20 {
			f.reserve(fmt.Sprintf(`{"class":"More","args":[%d]}`, i))
			f.push(fmt.Sprintf("queue%d", i), `{"class":"B","args":[1]}`)
		}
		after, afterSnap := look(stats), look(snap)
		require.Equal(f, before.trips, after.trips, "round trips do not grow with the queues")
		require.Equal(f, beforeSnap.trips, afterSnap.trips, "round trips do not grow with the queues")
		require.Equal(f, before.names["hlen"], after.names["hlen"])
		require.LessOrEqual(f, after.all-before.all, 4*20, "length, suspects, pause and head of each queue")
	})
}

func TestSnapshot(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		fillTotals(f)
		v, err := view.Snap(ctx, f.store)
		require.NoError(f, err)
		queues, err := view.Queues(ctx, f.store)
		require.NoError(f, err)
		for i, q := range queues {
			q.OldestS, v.Queues[i].OldestS = nil, nil // of another second, maybe
		}
		require.Equal(f, queues, v.Queues)
		workers, err := view.Workers(ctx, f.store)
		require.NoError(f, err)
		require.Len(f, v.Workers, len(workers))
		require.Len(f, v.Jobs, 2)
		require.EqualValues(f, 1000, v.Processed)
		require.EqualValues(f, 7, v.Failed)
		require.Positive(f, v.Took)

		_, err = view.Snap(cancelled(), f.store)
		require.Error(f, err)
	})
}
