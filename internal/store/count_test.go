package store_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// retried ends a job that runs again, for the time with a number from 0.
func retried(j store.Reserved, run int, delay time.Duration) store.Completion {
	return store.Completion{
		Job: &j, Kind: store.Retried, Delay: delay, Failure: store.Record([]byte(`{"exception":"E"}`)), Survived: true,
		Count: &store.Count{Key: "resque-retry:A:4f", Value: run},
	}
}

func (f *fixture) end(c ...store.Completion) store.ExchangeReply {
	f.t.Helper()
	return f.exchange(store.ExchangeRequest{Completions: c})
}

func (f *fixture) stats() [2]int64 {
	f.t.Helper()
	processed, failed, err := f.Stats(f.t.Context())
	require.NoError(f.t, err)
	return [2]int64{processed, failed}
}

const countKey, shownKey = "resque-retry:A:4f", "failure-resque-retry:A:4f"

func TestRetried(t *testing.T) {
	t.Parallel()
	redistest.Both(t, testRetried)
}

func testRetried(t *testing.T, server *redistest.Server) {
	one := func(t *testing.T, payload string) (*fixture, store.Reserved) {
		t.Helper()
		f := setup(t, server)
		f.push("q", payload)
		jobs := f.reserve(1, "q")
		require.Len(t, jobs, 1)
		return f, jobs[0]
	}

	t.Run("what resque-retry and resque-scheduler would write, byte for byte", func(t *testing.T) {
		f, j := one(t, job("A", `[1,"é"]`))
		before := f.keys()
		require.Equal(t, []bool{true}, f.end(retried(j, 2, time.Hour)).Applied)
		schedule, err := f.redis.ZRangeWithScores(t.Context(), f.key("delayed_queue_schedule"), 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, schedule, 1)
		at, _ := schedule[0].Member.(string)
		due, err := strconv.ParseInt(at, 10, 64)
		require.NoError(t, err)
		require.InDelta(t, due, schedule[0].Score, 0)
		wait := time.Until(time.Unix(due, 0))
		require.Greater(t, wait, 59*time.Minute)
		require.Less(t, wait, time.Hour+2*time.Second)
		item := `{"class":"A","args":[1,"é"],"queue":"q"}`
		require.Equal(t, []string{item}, f.list("delayed:"+at))
		require.Equal(t, []string{"delayed:" + at}, f.redis.SMembers(t.Context(), f.key("timestamps:"+item)).Val())
		require.Equal(t, "2", f.get(countKey))
		require.EqualValues(t, -1, f.redis.TTL(t.Context(), f.key(countKey)).Val(), "the count stays")
		require.Equal(t, `{"exception":"E"}`, f.get(shownKey))
		require.Equal(t, 2*time.Hour, f.redis.TTL(t.Context(), f.key(shownKey)).Val().Round(time.Minute))
		require.Equal(t, [2]int64{1, 1}, f.stats(), "as of any failed run")

		var gone, new []string
		for _, key := range before {
			if strings.Contains(key, "inflight") || strings.Contains(key, "job_locks") {
				gone = append(gone, key)
			}
		}
		for _, key := range []string{countKey, shownKey, "delayed_queue_schedule", "delayed:" + at, "timestamps:" + item, "stat:processed", "stat:failed"} {
			new = append(new, f.key(key))
		}
		require.Len(t, gone, 2)
		require.Subset(t, append(before, new...), f.keys())
		require.NotSubset(t, f.keys(), gone, "its record and its lock are gone")
		require.Subset(t, f.keys(), new)
		require.Empty(t, f.list("failed"))
	})

	t.Run("without a wait the job goes to the tail, whatever its payload", func(t *testing.T) {
		for _, payload := range delicate {
			f, j := one(t, payload)
			f.push("q", job("B", "[]"))
			require.Equal(t, []bool{true}, f.end(retried(j, 0, 0)).Applied)
			require.Equal(t, []string{job("B", "[]"), payload}, f.list("queue:q"))
			require.Equal(t, "0", f.get(countKey))
			require.False(t, f.exists(shownKey))
			require.Len(t, f.reserve(2, "q"), 2)
		}
	})

	t.Run("a payload that Ruby would not give back waits where only we know", func(t *testing.T) {
		payload := `{"class":"A","args":[1],"id":"4f"}`
		f, j := one(t, payload)
		f.end(retried(j, 0, time.Hour))
		require.Equal(t, []string{"1 q" + payload}, f.waiting())
		require.Equal(t, "0", f.get(countKey))
	})

	t.Run("a retry counts once however often it is sent", func(t *testing.T) {
		f, j := one(t, job("A", "[1]"))
		require.Equal(t, []bool{true}, f.end(retried(j, 0, 0)).Applied)
		f.set(countKey, "5") // of the next run, which is elsewhere
		require.Equal(t, []bool{false}, f.end(retried(j, 0, 0)).Applied)
		require.Equal(t, "5", f.get(countKey))
		require.Len(t, f.list("queue:q"), 1)
		require.Equal(t, [2]int64{1, 1}, f.stats())
	})

	t.Run("the count is gone with the last run, however that ends", func(t *testing.T) {
		for _, kind := range []store.Kind{store.Done, store.Failed} {
			f, j := one(t, job("A", "[1]"))
			f.set(countKey, "3")
			f.set(shownKey, "{}")
			c := store.Completion{Job: &j, Kind: kind, Failure: store.Record([]byte(`{"x":1}`)), Count: &store.Count{Key: countKey}}
			require.Equal(t, []bool{true}, f.end(c).Applied)
			require.False(t, f.exists(countKey))
			require.False(t, f.exists(shownKey))
			f.set(countKey, "0") // of an equal job
			require.Equal(t, []bool{false}, f.end(c).Applied)
			require.True(t, f.exists(countKey), "what comes late changes nothing")
			if kind == store.Failed {
				require.Equal(t, []string{`{"x":1}`}, f.list("failed"))
			}
		}
	})

	t.Run("the count may have an end", func(t *testing.T) {
		f, j := one(t, job("A", "[1]"))
		c := retried(j, 1, time.Minute)
		c.Count.Lifetime = time.Hour + time.Millisecond
		before := f.redis.Time(t.Context()).Val().UnixMilli()
		f.end(c)
		left := f.redis.PTTL(t.Context(), f.key(countKey)).Val().Milliseconds()
		passed := f.redis.Time(t.Context()).Val().UnixMilli() - before // whole milliseconds, as in PTTL
		require.GreaterOrEqual(t, left, 3601_000-passed, "rounded up")
		f.lives(countKey, 3601)
		f.lives(shownKey, 120)
	})

	t.Run("in a unique queue it is dropped if an equal job waits, and that one goes on counting", func(t *testing.T) {
		f := setup(t, server)
		payload := []byte(job("A", "[1]"))
		_, err := f.PushUnique(t.Context(), "u", false, payload)
		require.NoError(t, err)
		j := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: []store.Queue{{Name: "u", Unique: true}}}).Jobs[0]
		_, err = f.PushUnique(t.Context(), "u", false, payload)
		require.NoError(t, err)
		reply := f.end(retried(j, 1, 0))
		require.Equal(t, []bool{true}, reply.Applied)
		require.Equal(t, []int{0}, reply.Duplicates)
		require.Len(t, f.list("queue:u"), 1)
		require.Equal(t, "1", f.get(countKey))
		f.inStep("u")
	})

	t.Run("a key of another type keeps the job in flight, and nothing is written", func(t *testing.T) {
		for _, key := range []string{countKey, "queue:q", "resqued:delayed", "delayed_queue_schedule"} {
			f, j := one(t, job("A", "[1]"))
			if require.NoError(t, f.redis.Del(t.Context(), f.key(key)).Err()); key == "queue:q" || key[0] != 'r' || key == "resqued:delayed" {
				require.NoError(t, f.redis.HSet(t.Context(), f.key(key), "a", "b").Err())
			} else {
				require.NoError(t, f.redis.RPush(t.Context(), f.key(key), "a").Err())
			}
			before := f.keys()
			reply := f.end(retried(j, 1, time.Hour))
			require.Equal(t, []bool{false}, reply.Applied)
			require.Contains(t, reply.Stuck[0], key)
			require.ElementsMatch(t, before, f.keys())
			require.NoError(t, f.redis.Del(t.Context(), f.key(key)).Err())
			require.Equal(t, []bool{true}, f.end(retried(j, 1, time.Hour)).Applied)
			require.Equal(t, "1", f.get(countKey))
		}
	})

	t.Run("a count of another type is not removed", func(t *testing.T) {
		f, j := one(t, job("A", "[1]"))
		require.NoError(t, f.redis.RPush(t.Context(), f.key(countKey), "a").Err())
		require.Equal(t, []bool{true}, f.end(store.Completion{Job: &j, Kind: store.Done, Count: &store.Count{Key: countKey}}).Applied)
		require.Equal(t, []string{"a"}, f.list(countKey))
	})

	t.Run("a reader of counts", func(t *testing.T) {
		f := setup(t, server)
		for key, value := range map[string]string{"a": "0", "b": "7", "c": "-1", "d": "seven", "e": "99999999999"} {
			f.set(key, value)
		}
		require.NoError(t, f.redis.RPush(t.Context(), f.key("f"), "1").Err())
		counts, err := f.RetryCounts(t.Context(), []string{"a", "b", "c", "d", "e", "f", "g"})
		require.NoError(t, err)
		require.Equal(t, []int{0, 7, -1, -1, -1, -1, -1}, counts)
	})
}

// The run of a job that has died before shows that it is not to blame.
func TestRetriedSuspect(t *testing.T) {
	t.Parallel()
	for _, survived := range []bool{true, false} {
		f := setup(t, redistest.Shared(t))
		f.push("q", job("A", "[1]"))
		j := f.reserve(1, "q")[0]
		_, _, err := f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: j.Token, Action: store.Requeue}}))
		f.register("p1")
		j = f.reserve(1, "q")[0]
		require.Equal(t, 1, j.Deaths)
		c := retried(j, 0, 0)
		c.Survived = survived
		f.end(c)
		deaths := 0
		if !survived {
			deaths = 1
		}
		require.Equal(t, deaths, f.reserve(1, "q")[0].Deaths)
	}
}

// A job that failed with its process has a fresh count when it is enqueued again.
func TestCountOfTheDead(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[2]"))
		jobs := f.reserve(2, "q")
		f.set(countKey, "1")
		f.set("resque-retry:B", "2")
		require.NoError(t, f.redis.RPush(t.Context(), f.key("resque-retry:C"), "a").Err())
		_, _, err := f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{
			{Token: jobs[0].Token, Action: store.Requeue, Counts: []string{"resque-retry:B"}},
			{Token: jobs[1].Token, Action: store.Fail, Failure: store.Record([]byte("{}")), Counts: []string{"none", countKey, "resque-retry:C"}},
		}))
		require.False(t, f.exists(countKey))
		require.True(t, f.exists("resque-retry:B"))
		require.Equal(t, []string{"a"}, f.list("resque-retry:C"))
	})
}
