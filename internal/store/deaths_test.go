package store_test

import (
	"crypto/sha1" //nolint:gosec // as in the scripts
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// deathKeys are the keys that hold counts of deaths.
func (f *fixture) deathKeys() (keys []string) {
	f.t.Helper()
	for _, key := range f.keys() {
		if strings.Contains(key, "resqued:deaths") || strings.Contains(key, "resqued:died") {
			keys = append(keys, key)
		}
	}
	return keys
}

// deathOf is the count of a job, "" if there is none.
func (f *fixture) deathOf(queue, payload string) string {
	f.t.Helper()
	counts := f.redis.HGetAll(f.t.Context(), f.key("resqued:deaths:"+queue)).Val()
	return counts[fmt.Sprintf("%x", sha1.Sum([]byte(payload)))] //nolint:gosec // as above
}

// died has a job of a queue die with its process; it waits again then.
func (f *fixture) died(queue string, payload string) {
	f.t.Helper()
	f.push(queue, payload)
	f.dies(store.Suspect, f.want(1, store.TakeSuspects, store.Queue{Name: queue}).Jobs...)
	require.Equal(f.t, []string{payload}, f.list("queue:"+queue))
}

// TestDeathsEndWithTheirJob: a count of deaths ends with its job, by whatever that leaves its
// queue.
func TestDeathsEndWithTheirJob(t *testing.T) {
	t.Parallel()
	a, b := job("A", "[1]"), job("B", "[2]")
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		innocent := func(f *fixture) {
			f.t.Helper()
			require.Empty(f.t, f.deathKeys())
			f.push("q", a)
			jobs := f.want(1, store.SetApart, store.Queue{Name: "q"}).Jobs
			require.Equal(f.t, []string{a}, payloads(jobs), "an equal job is not a suspect")
			require.Zero(f.t, jobs[0].Deaths)
		}
		for _, keep := range []bool{false, true} {
			t.Run(fmt.Sprintf("queue removed, its name kept: %v", keep), func(t *testing.T) {
				f := setup(t, server)
				f.died("q", a)
				_, err := f.RemoveQueue(t.Context(), "q", keep)
				require.NoError(t, err)
				innocent(f)
			})
			t.Run(fmt.Sprintf("queue removed with a suspect, its name kept: %v", keep), func(t *testing.T) {
				f := setup(t, server)
				f.died("q", a)
				require.Equal(t, 1, f.want(1, store.SetApart, store.Queue{Name: "q"}).Suspects)
				_, err := f.RemoveQueue(t.Context(), "q", keep)
				require.NoError(t, err)
				innocent(f)
			})
		}
		t.Run("another queue removed", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			_, err := f.RemoveQueue(t.Context(), "other", false)
			require.NoError(t, err)
			require.Equal(t, 1, f.want(1, store.SetApart, store.Queue{Name: "q"}).Suspects)
		})
		t.Run("job dequeued", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			n, err := f.Dequeue(t.Context(), "q", func(p []byte) bool { return string(p) == a }, nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			innocent(f)
		})
		t.Run("job dequeued while an equal one waits apart", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			require.Equal(t, 1, f.want(1, store.SetApart, store.Queue{Name: "q"}).Suspects)
			f.push("q", a)
			n, err := f.Dequeue(t.Context(), "q", func(p []byte) bool { return string(p) == a }, nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			jobs := f.want(1, store.OnlySuspects, store.Queue{Name: "q"}).Jobs
			require.Equal(t, 1, jobs[0].Blame)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0])}})
			innocent(f)
		})
		t.Run("ended by another of its deaths", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			f.dies(store.Fail, f.want(1, store.TakeSuspects, store.Queue{Name: "q"}).Jobs...)
			innocent(f)
		})
		t.Run("in hand while an equal one is dequeued", func(t *testing.T) {
			for _, action := range []store.Action{store.Suspect, store.Requeue} {
				f := setup(t, server)
				f.died("q", a)
				jobs := f.want(1, store.TakeSuspects, store.Queue{Name: "q"}).Jobs
				f.push("q", a)
				_, err := f.Dequeue(t.Context(), "q", func([]byte) bool { return true }, nil)
				require.NoError(t, err)
				require.Empty(t, f.deathKeys())
				f.dies(action, jobs...)
				jobs = f.want(1, store.TakeSuspects, store.Queue{Name: "q"}).Jobs
				require.Equal(t, 2, jobs[0].Deaths, "its record has the first one")
				require.Equal(t, map[store.Action]int{store.Suspect: 2, store.Requeue: 1}[action], jobs[0].Blame)
			}
		})
		t.Run("job parked and removed there", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", a)
			jobs := f.want(1, store.TakeSuspects, store.Queue{Name: "q"}).Jobs
			f.put("queue:q", "text")
			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: jobs[0].Token, Action: store.Suspect, Park: true}}))
			f.register("p1")
			f.redis.Del(t.Context(), f.key("queue:q"))
			parked, _, err := f.Parked(t.Context(), 9)
			require.NoError(t, err)
			require.Len(t, parked, 1)
			dropped, err := f.DropParked(t.Context(), parked[0].ID)
			require.NoError(t, err)
			require.True(t, dropped)
			innocent(f)
		})
		t.Run("the rest stays", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", a, b)
			f.dies(store.Suspect, f.want(2, store.TakeSuspects, store.Queue{Name: "q"}).Jobs...)
			_, err := f.Dequeue(t.Context(), "q", func(p []byte) bool { return string(p) == a }, nil)
			require.NoError(t, err)
			require.Equal(t, 1, f.want(1, store.SetApart, store.Queue{Name: "q"}).Suspects)
			require.Empty(t, f.deathOf("q", a))
			require.Equal(t, "1 1", f.deathOf("q", b))
		})
	})
}

// TestDeathsOfTakenJobs: where others have taken a job, which end no counts, its count is found
// by looking at its queue, or by its age.
func TestDeathsOfTakenJobs(t *testing.T) {
	t.Parallel()
	const hour, week = time.Hour, 7 * 24 * time.Hour
	a, b := job("A", "[1]"), job("B", "[2]")
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		// ages makes the counts of a queue older than they are.
		ages := func(f *fixture, by time.Duration) {
			f.t.Helper()
			for _, member := range f.redis.ZRange(f.t.Context(), f.key("resqued:died:q"), 0, -1).Val() {
				f.redis.ZIncrBy(f.t.Context(), f.key("resqued:died:q"), -float64(by.Milliseconds()), member)
			}
		}
		look := func(f *fixture) {
			f.t.Helper()
			_, _, err := f.Orphans(f.t.Context())
			require.NoError(f.t, err)
		}
		t.Run("an empty queue", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			require.Equal(t, a, f.redis.LPop(t.Context(), f.key("queue:q")).Val())
			look(f)
			require.Equal(t, "1 1", f.deathOf("q", a), "it may be in hand, and come back")
			ages(f, hour)
			look(f)
			require.Empty(t, f.deathKeys())
		})
		t.Run("a queue that holds others", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			require.Equal(t, a, f.redis.LPop(t.Context(), f.key("queue:q")).Val())
			f.push("q", b)
			ages(f, hour)
			look(f)
			require.Equal(t, "1 1", f.deathOf("q", a))
			ages(f, week)
			look(f)
			require.Empty(t, f.deathKeys())
		})
		t.Run("suspects count as waiting", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			require.Equal(t, 1, f.want(1, store.SetApart, store.Queue{Name: "q"}).Suspects)
			ages(f, hour)
			look(f)
			require.Equal(t, 1, f.want(1, store.OnlySuspects, store.Queue{Name: "q"}).Jobs[0].Blame)
		})
		t.Run("the young ones stay", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			ages(f, week)
			require.Len(t, f.want(1, store.TakeSuspects, store.Queue{Name: "q"}).Jobs, 1)
			f.died("q", b)
			look(f)
			require.Empty(t, f.deathOf("q", a))
			require.Equal(t, "1 1", f.deathOf("q", b))
		})
		t.Run("all of it expires where no daemon runs", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			keys := f.deathKeys()
			require.Len(t, keys, 3)
			for _, key := range keys {
				require.InDelta(t, week.Seconds(), f.redis.TTL(t.Context(), key).Val().Seconds(), 60, key)
			}
		})
		t.Run("queues have their turn", func(t *testing.T) {
			f := setup(t, server)
			for i := range 35 {
				f.died(fmt.Sprint("q", i), a)
			}
			f.redis.Del(t.Context(), f.key("queue:q34"), f.key("resqued:deaths:q34"), f.key("resqued:died:q34"))
			looks := 0
			for ; f.redis.ZScore(t.Context(), f.key("resqued:deaths"), "q34").Err() == nil; looks++ {
				require.Less(t, looks, 10)
				look(f)
			}
			require.EqualValues(t, 34, f.redis.ZCard(t.Context(), f.key("resqued:deaths")).Val())
		})
		t.Run("keys of another type", func(t *testing.T) {
			for _, name := range []string{"resqued:deaths", "resqued:deaths:q", "resqued:died:q"} {
				f := setup(t, server)
				f.died("q", a)
				f.redis.Del(t.Context(), f.key(name))
				f.put(name, "text")
				look(f)
				f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(f.want(1, store.TakeSuspects, store.Queue{Name: "q"}).Jobs[0])}})
				f.died("q", a) // and counts again
				require.Equal(t, "1 1", f.deathOf("q", a), name)
				require.Equal(t, 1, f.want(1, store.SetApart, store.Queue{Name: "q"}).Suspects, name)
			}
		})
	})
}

// TestFastPathBesideDeaths: jobs that have died take the slow path, and no others.
func TestFastPathBesideDeaths(t *testing.T) {
	t.Parallel()
	a, b, c := job("A", "[1]"), job("B", "[2]"), job("C", "[3]")
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		// direct has the next calls fail that do not take the fast path.
		direct := func(f *fixture) {
			f.t.Helper()
			require.NoError(f.t, storetest.Alter(f.Redis(), "exchange_slow", `local reasons = reply[5]`, `error('the long way')`))
		}
		queues := []store.Queue{{Name: "o"}, {Name: "q"}, {Name: "r", Locked: true}}
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d wanted, a count without a job", n), func(t *testing.T) {
				f := setup(t, server)
				f.died("q", a)
				f.died("o", a)
				f.redis.Del(t.Context(), f.key("queue:q"), f.key("queue:o"))
				direct(f)
				f.push("q", b)
				require.Equal(t, []string{b}, payloads(f.want(n, store.SetApart, queues...).Jobs))
				f.push("r", b, c)
				jobs := f.exchange(store.ExchangeRequest{Master: "m", Wants: f.wants(n), Queues: queues, Empty: 2}).Jobs
				require.Len(t, jobs, min(n, 2))
			})
			t.Run(fmt.Sprintf("%d wanted, a job that has died", n), func(t *testing.T) {
				f := setup(t, server)
				f.died("q", a)
				f.push("q", b)
				f.push("r", a)
				require.Equal(t, []string{b, a}[:min(n, 2)], payloads(f.want(n, store.SetApart, queues...).Jobs))
				require.Equal(t, map[string]int{"q": 1}, f.suspects())
			})
		}
		t.Run("one that has died behind others", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", a)
			f.redis.LPush(t.Context(), f.key("queue:q"), b, c)
			f.push("q", b)
			reply := f.want(9, store.SetApart, queues...)
			require.Equal(t, []string{c, b, b}, payloads(reply.Jobs))
			require.Equal(t, 1, reply.Suspects)
			require.Empty(t, f.list("queue:q"))
		})
		t.Run("one that has died without being suspected has its count", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", a)
			f.dies(store.Requeue, f.reserve(1, "q")...)
			jobs := f.want(1, store.SetApart, queues...).Jobs
			require.Equal(t, 1, jobs[0].Deaths)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0])}})
			require.Empty(t, f.deathKeys())
		})
	})
}

// A job that goes back because its time was over, or its lock was lost, keeps its place and has
// not died.
func TestBackWithoutADeath(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("q", "first", "second", "third")
		jobs := f.want(2, store.TakeSuspects, store.Queue{Name: "q", Locked: true}).Jobs
		f.dies(store.Back, jobs...)
		require.Equal(t, []string{"first", "second", "third"}, f.list("queue:q"))
		require.Empty(t, f.deathKeys())
		require.Zero(t, f.redis.Exists(t.Context(), jobs[0].LockKey).Val())
	})
}
