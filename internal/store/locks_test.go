package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func (f *fixture) put(key, value string, ttl ...time.Duration) {
	f.t.Helper()
	require.NoError(f.t, f.redis.Set(f.t.Context(), f.key(key), value, append(ttl, 0)[0]).Err())
}

func (f *fixture) locks(kind string) map[string]store.LockInfo {
	f.t.Helper()
	list, cut, err := f.Locks(f.t.Context(), kind, 1000)
	require.NoError(f.t, err)
	require.False(f.t, cut)
	byKey := map[string]store.LockInfo{}
	for _, l := range list {
		byKey[l.Key] = l
	}
	require.Len(f.t, byKey, len(list))
	return byKey
}

// find returns the one lock of a name.
func (f *fixture) find(name string) store.LockInfo {
	f.t.Helper()
	list, err := f.FindLocks(f.t.Context(), name)
	require.NoError(f.t, err)
	require.Len(f.t, list, 1, name)
	return list[0]
}

func (f *fixture) remove(name string, force bool) string {
	f.t.Helper()
	outcome, found, err := f.RemoveLock(f.t.Context(), f.find(name), force)
	require.NoError(f.t, err)
	require.True(f.t, found)
	return outcome
}

// hold notes class locks under a record, as acquire does.
func (f *fixture) hold(proc, token string, locks ...string) {
	f.t.Helper()
	entry := ""
	for _, key := range locks {
		value := "true:resqued:" + proc + "#" + token
		f.put(key, value)
		entry += fmt.Sprintf("%d %d\n%s%s", len(f.key(key)), len(value), f.key(key), value)
	}
	require.NoError(f.t, f.redis.HSet(f.t.Context(), f.key("resqued:held:"+proc), token, entry).Err())
}

func (f *fixture) endLease(proc string) {
	f.t.Helper()
	require.NoError(f.t, f.redis.ZAdd(f.t.Context(), f.key("resqued:procs"), redis.Z{Score: 1000, Member: proc}).Err())
}

func epoch(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }

func TestLocksTellTheirHolders(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("every kind and state", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("Sync", "[42]"))
			j := f.reserve(1, "q")[0]
			me := "resqued:p1#" + j.Token
			f.put("lock:Graph:1", "true:"+me)
			f.put("lock:Graph:2", epoch(-time.Minute)+":"+me, time.Minute)
			f.put("lock:Graph:3", epoch(time.Minute)+":"+me)
			f.put("lock:Graph:4", "true:resqued:p1#gone")
			f.put("lock:Graph:5", epoch(time.Hour))
			f.put("lock:Graph:6", "true")
			f.put("locket:job_locks:A[1]", "")
			f.put("locket:job_locks:A[2]", "resqued:p9#1")
			require.NoError(t, f.redis.RPush(t.Context(), f.key("lock:list"), "x").Err())
			waiting, lost := job("Export", "[7]"), job("Export", "[8]")
			f.push("exports", waiting)
			f.put("loner:lock:Export:7", fmt.Sprintf("true:queue:7:exports%s", waiting))
			f.put("loner:lock:Export:8", fmt.Sprintf("true:queue:7:exports%s", lost))
			f.put("loner:lock:Export:9", epoch(-time.Minute)+fmt.Sprintf(":queue:7:exports%s", waiting))
			f.put("loner:updates", "true")
			// These only look like locks.
			f.put("locked", "x")
			f.put("locker:x", "x")

			states := map[string]string{}
			locks := f.locks("")
			for key, l := range locks {
				states[l.Kind+" "+key] = l.State
			}
			require.Equal(t, map[string]string{
				"locket locket:job_locks:Sync[42]": store.LockHeld,
				"locket locket:job_locks:A[1]":     store.LockForeign,
				"locket locket:job_locks:A[2]":     store.LockOrphan,
				"timeout lock:Graph:1":             store.LockHeld,
				"timeout lock:Graph:2":             store.LockExpired,
				"timeout lock:Graph:3":             store.LockHeld,
				"timeout lock:Graph:4":             store.LockOrphan,
				"timeout lock:Graph:5":             store.LockForeign,
				"timeout lock:Graph:6":             store.LockForeign,
				"timeout lock:list":                store.LockForeign,
				"loner loner:lock:Export:7":        store.LockHeld,
				"loner loner:lock:Export:8":        store.LockOrphan,
				"loner loner:lock:Export:9":        store.LockExpired,
				"loner loner:updates":              store.LockForeign,
			}, states)

			held := locks["locket:job_locks:Sync[42]"]
			require.Equal(t, "p1", held.Proc)
			require.Equal(t, j.Token, held.Token)
			require.Equal(t, store.LockJob{
				Queue: "q", Worker: "h/0.0:1:q", Class: "Sync", Args: "[42]", Fence: j.Fence, Since: j.StartedAt,
				Payload: []byte{}, Size: int64(len(j.Payload)),
			}, *held.Job)
			require.Positive(t, held.Age())
			require.Positive(t, held.TTL)
			require.Positive(t, locks["lock:Graph:2"].TTL)
			require.Negative(t, locks["lock:Graph:1"].TTL)
			require.True(t, locks["lock:Graph:1"].Expires.IsZero())
			require.True(t, locks["lock:Graph:2"].Expires.Before(time.Now()))
			require.WithinDuration(t, time.Now().Add(time.Hour), locks["lock:Graph:5"].Expires, 30*time.Second)
			require.Equal(t, waiting, string(locks["loner:lock:Export:7"].Job.Payload))
			require.Equal(t, "exports", locks["loner:lock:Export:8"].Job.Queue)
			require.Nil(t, locks["loner:updates"].Job)
			require.Zero(t, locks["loner:updates"].Age())

			require.Len(t, f.locks(store.LonerMarker), 4)
			require.Len(t, f.locks(store.LocketLock), 3)
			require.Len(t, f.locks(store.TimeoutLock), 7)
		})
		t.Run("a marker whose job is just being started is held", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("Export", "[7]"))
			f.reserve(1, "q")
			f.put("loner:lock:Export:7", "true:queue:1:q"+job("Export", "[7]"))
			require.Equal(t, store.LockHeld, f.find("loner:lock:Export:7").State)
		})
		t.Run("the holder's process has no lease", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("Sync", "[42]"))
			f.reserve(1, "q")
			f.endLease("p1")
			require.Equal(t, store.LockStale, f.find("Sync[42]").State)
			// After a silence of all processes, no lease may be judged.
			require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:meta"), "grace", time.Now().Add(time.Minute).UnixMilli()).Err())
			require.Equal(t, store.LockHeld, f.find("Sync[42]").State)
		})
		t.Run("a Redis without daemons cannot tell that a record is gone", func(t *testing.T) {
			f := setup(t, server)
			f.put("lock:Graph:4", "true:resqued:p1#gone")
			f.put("loner:lock:Graph:4", "true:queue:1:q{}")
			require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:meta")).Err())
			require.Equal(t, store.LockHeld, f.find("lock:Graph:4").State)
			require.Equal(t, store.LockHeld, f.find("loner:lock:Graph:4").State)
		})
		t.Run("class locks with keys of their own are found through those who hold them", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("Sync", "[42]"))
			j := f.reserve(1, "q")[0]
			f.hold("p1", j.Token, "updates", "lock:x\ny")
			locks := f.locks("")
			require.Len(t, locks, 3)
			require.Equal(t, store.TimeoutLock, locks["updates"].Kind)
			require.Equal(t, store.LockHeld, locks["lock:x\ny"].State)
			require.Equal(t, "Sync", f.find("updates").Job.Class)
			require.Len(t, f.locks(store.LocketLock), 1)
		})
		t.Run("names may be whole, without namespace, or without what all begin with", func(t *testing.T) {
			f := setup(t, server)
			f.put("locket:job_locks:A[1]", "")
			f.put("lock:A:1", "true")
			f.put("loner:lock:B:1", "true")
			for _, name := range []string{f.key("locket:job_locks:A[1]"), "locket:job_locks:A[1]", "A[1]"} {
				require.Equal(t, "locket:job_locks:A[1]", f.find(name).Key, name)
			}
			require.Equal(t, "lock:A:1", f.find("A:1").Key)
			require.Equal(t, "loner:lock:B:1", f.find("B:1").Key)
			require.Equal(t, "loner:lock:B:1", f.find("lock:B:1").Key)
			for _, name := range []string{"", "queues", "resqued:procs", f.key("resqued:procs"), "lock:", "A[2]"} {
				list, err := f.FindLocks(t.Context(), name)
				require.NoError(t, err)
				require.Empty(t, list, name)
			}
			f.put("loner:lock:A:1", "true")
			list, err := f.FindLocks(t.Context(), "A:1")
			require.NoError(t, err)
			require.Len(t, list, 2)
		})
		t.Run("a list is cut at its limit", func(t *testing.T) {
			f := setup(t, server)
			for i := range 30 {
				f.put(fmt.Sprintf("locket:job_locks:A[%d]", i), "")
			}
			list, cut, err := f.Locks(t.Context(), "", 10)
			require.NoError(t, err)
			require.Len(t, list, 10)
			require.True(t, cut)
			list, cut, err = f.Locks(t.Context(), "", 30)
			require.NoError(t, err)
			require.Len(t, list, 30)
			require.False(t, cut)
		})
		t.Run("hostile keys and values do no harm", func(t *testing.T) {
			f := setup(t, server)
			values := []string{
				"", "true", ":", "true:", "true:queue:", "true:queue:9999999999999999999:x", "true:queue:5:q", "true:queue:-1:q",
				"true:resqued:#", "true:resqued:p1#", "99999999999999999999:resqued:p1#1", "-5", " 7", "\xff\x00\n",
				"resqued:#", "true:queue:1:q" + strings.Repeat("[", 10000), strings.Repeat("x", 1<<17),
			}
			long := strings.Repeat("k", 1<<17)
			for i, v := range values {
				f.put(fmt.Sprintf("lock:%d\n\x1b[2J", i), v)
				f.put(fmt.Sprintf("loner:lock:%d\n\xff", i), v)
				f.put(fmt.Sprintf("locket:job_locks:%d", i), v)
			}
			f.put("lock:"+long, "true")
			f.put("lock:b"+long, "true")
			f.put("resqued:inflight:p5", "no hash")
			f.put("lock:p5", "true:resqued:p5#1")
			require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:inflight:p6"), "1", "no record").Err())
			f.put("lock:p6", "true:resqued:p6#1")
			for _, entry := range []string{"x", "9 9\nx", "-1 5\nabc", "1 9223372036854775807\nabc", "0 0\n", ""} {
				require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:held:p1"), entry, entry).Err())
			}
			locks := f.locks("")
			require.Len(t, locks, 3*len(values)+4)
			require.Len(t, locks["lock:16\n\x1b[2J"].Value, 400)
			for key := range locks {
				require.NotEmpty(t, f.find(key).State)
			}
		})
	})
}

func TestRemoveLock(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		// running is a job in hand with a job lock and two class locks.
		running := func(t *testing.T) (*fixture, store.Reserved) {
			t.Helper()
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("A", "[1]"))
			j := f.reserve(1, "q")[0]
			f.hold("p1", j.Token, "lock:A:1", "updates")
			return f, j
		}
		beat := func(f *fixture, j store.Reserved) store.BeatReply {
			f.t.Helper()
			reply, err := f.Beat(f.t.Context(), store.BeatRequest{
				Proc: "p1", Jobs: []store.Running{{Token: j.Token, LockKey: j.LockKey, Held: true}},
			})
			require.NoError(f.t, err)
			return reply
		}

		t.Run("a living holder keeps its lock, unless forced; then it finds out", func(t *testing.T) {
			for _, name := range []string{"A[1]", "lock:A:1", "updates"} {
				f, j := running(t)
				require.Equal(t, store.LockRefused, f.remove(name, false))
				require.Empty(t, beat(f, j).Lost)
				key := f.find(name).Key
				require.Equal(t, store.LockReleased, f.remove(name, true))
				require.False(t, f.exists(key))
				require.Equal(t, []string{j.Token}, beat(f, j).Lost, name)
			}
		})
		t.Run("what a dead holder left is released, with its entry", func(t *testing.T) {
			f, j := running(t)
			require.NoError(t, f.redis.HDel(t.Context(), f.key("resqued:inflight:p1"), j.Token).Err())
			require.Equal(t, store.LockReleased, f.remove("A[1]", false))
			require.Equal(t, store.LockReleased, f.remove("lock:A:1", false))
			require.Equal(t, store.LockOrphan, f.find("updates").State, "the other one is known still")
			require.Equal(t, store.LockReleased, f.remove("updates", false))
			require.False(t, f.exists("resqued:held:p1"))
		})
		t.Run("a holder without a lease keeps nothing", func(t *testing.T) {
			f, _ := running(t)
			f.endLease("p1")
			require.Equal(t, store.LockReleased, f.remove("lock:A:1", false))
			require.True(t, f.exists("resqued:held:p1"), "its record is there still: recovery takes it")
		})
		t.Run("a foreign lock needs force", func(t *testing.T) {
			f := setup(t, server)
			for _, value := range []string{"", "true", "1000"} {
				f.put("lock:A:1", value)
				require.Equal(t, store.LockRefused, f.remove("lock:A:1", false))
				require.True(t, f.exists("lock:A:1"))
				require.Equal(t, store.LockReleased, f.remove("lock:A:1", true))
				require.False(t, f.exists("lock:A:1"))
			}
			require.NoError(t, f.redis.SAdd(t.Context(), f.key("lock:A:1"), "x").Err())
			require.Equal(t, store.LockRefused, f.remove("lock:A:1", false))
			require.Equal(t, store.LockReleased, f.remove("lock:A:1", true))
		})
		t.Run("a marker stays as long as its job waits", func(t *testing.T) {
			f := setup(t, server)
			payload := job("Export", "[7]")
			f.push("q", payload)
			f.put("loner:lock:Export:7", "true:queue:1:q"+payload)
			require.Equal(t, store.LockRefused, f.remove("loner:lock:Export:7", false))
			require.NoError(t, f.redis.Del(t.Context(), f.key("queue:q")).Err())
			require.Equal(t, store.LockReleased, f.remove("loner:lock:Export:7", false))
		})
		t.Run("somebody else's by now is left alone, even by force", func(t *testing.T) {
			f, _ := running(t)
			looked := f.find("lock:A:1")
			f.put("lock:A:1", "true:resqued:p2#7")
			outcome, found, err := f.RemoveLock(t.Context(), looked, true)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, store.LockChanged, outcome)
			require.True(t, f.exists("lock:A:1"))

			require.NoError(t, f.redis.Del(t.Context(), f.key("lock:A:1")).Err())
			_, found, err = f.RemoveLock(t.Context(), looked, true)
			require.NoError(t, err)
			require.False(t, found)
		})
		t.Run("queues that wait look again", func(t *testing.T) {
			f, j := running(t)
			jobs, _ := f.passes(1, "q")
			require.Empty(t, jobs)
			require.Equal(t, store.Locked, f.poll("q").Reasons["q"])
			waiters, err := f.LockWaiters(t.Context(), "locket:job_locks:A[1]")
			require.NoError(t, err)
			require.Equal(t, []string{"q"}, waiters)
			waiters, err = f.LockWaiters(t.Context(), "lock:A:1")
			require.NoError(t, err)
			require.Empty(t, waiters)

			require.NoError(t, f.redis.HDel(t.Context(), f.key("resqued:inflight:p1"), j.Token).Err())
			require.Equal(t, store.LockReleased, f.remove("A[1]", false))
			require.False(t, f.exists("resqued:blocked:q"))
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			require.Len(t, f.reserve(1, "q"), 1)
		})
	})
}

func TestWaitList(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[1]"), job("A", "[1]"), job("A", "[2]"))
		require.Len(t, f.reserve(2, "q"), 2)
		jobs, _ := f.passes(1, "q")
		require.Empty(t, jobs)
		f.push("q", job("B", "[1]"))
		f.push("gem", job("A", "[1]"))
		f.push("calm", job("A", "[1]"))
		counters := f.key("locket:queue_lock_counters")
		require.NoError(t, f.redis.HSet(t.Context(), counters, "gem", 7, "gone", 3, "calm", "x").Err())

		list, err := f.WaitList(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, store.WaitInfo{Queue: "gem", Locked: 1, Size: 1}, list[0])
		require.WithinDuration(t, time.Now(), list[1].Since, 30*time.Second)
		list[1].Since = time.Time{}
		require.Equal(t, store.WaitInfo{Queue: "q", Locked: 2, Size: 3, Locks: 1}, list[1])
	})
}

func TestUniqueList(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("good", "a", "b")
		require.NoError(t, f.redis.SAdd(t.Context(), f.key("queue:good:uniqueue"), "a", "b").Err())
		require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:good:start_at"), 1, 2).Err())
		f.push("bad", "a")
		f.put("queue:broken:uniqueue", "x")

		list, err := f.UniqueList(t.Context(), []string{"good", "bad", "broken", "none"})
		require.NoError(t, err)
		sizes := func(u store.UniqueInfo) []int64 { return []int64{u.Size, u.Members, u.Starts} }
		require.Equal(t, []int64{2, 2, 2}, sizes(list[0]))
		require.True(t, list[0].InStep() && list[0].Kept)
		require.Equal(t, []int64{1, 0, 0}, sizes(list[1]))
		require.False(t, list[1].InStep() || list[1].Kept)
		require.ErrorContains(t, list[2].Err, "WRONGTYPE")
		require.False(t, list[2].InStep())
		require.True(t, list[2].Kept)
		require.True(t, list[3].InStep())
	})
}

// Any node but the one of the namespace's slot knows none of its keys.
func TestLocksOfACluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Args: []string{"--cluster-enabled", "yes"}})
	client := server.Client(t)
	require.NoError(t, client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, 30*time.Second, 10*time.Millisecond)
	s, err := store.Open(store.Options{URL: "redis-cluster://" + server.Addr, Namespace: "{r}"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, client.Set(t.Context(), "{r}:lock:A:1", "true", 0).Err())
	require.NoError(t, client.SAdd(t.Context(), "{r}:queues", "q").Err())

	locks, cut, err := s.Locks(t.Context(), "", 10)
	require.NoError(t, err)
	require.False(t, cut)
	require.Len(t, locks, 1)
	_, err = s.UniqueList(t.Context(), []string{"q"})
	require.NoError(t, err)
	_, err = s.LockWaiters(t.Context(), "lock:A:1")
	require.NoError(t, err)
	outcome, found, err := s.RemoveLock(t.Context(), locks[0], true)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, store.LockReleased, outcome)
}
