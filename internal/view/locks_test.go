package view_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

func TestLocks(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		job := f.reserve(`{"class":"Sync","args":[42]}`)
		f.do("SET", "lock:Sync:42", "1000:resqued:"+proc+"#"+job.Token)
		f.do("SET", "lock:gone:1", "true:resqued:px#11")
		f.do("SET", "lock:ruby:1", "true", "EX", 500)
		long := "lock:" + strings.Repeat("long ", 100)
		f.do("SET", long, "true")

		locks, cut, err := view.Locks(ctx, f.store, "", 100)
		require.NoError(f, err)
		require.False(f, cut)
		byKey := map[string]*view.Lock{}
		for _, l := range locks {
			byKey[l.Key] = l
		}
		require.Len(f, byKey, 5)
		held := byKey["locket:job_locks:Sync[42]"]
		require.NotNil(f, held)
		require.Equal(f, store.LockHeld, held.State)
		require.Equal(f, worker, *held.Holder)
		require.Equal(f, "web-1:9120.0.3 Sync", held.HolderText())
		require.Equal(f, json.RawMessage("[42]"), held.Args)
		require.NotNil(f, held.TTLS)
		require.Nil(f, held.ExpiresS)
		require.Empty(f, held.Payload)

		require.Equal(f, store.LockExpired, byKey["lock:Sync:42"].State)
		require.Negative(f, *byKey["lock:Sync:42"].ExpiresS)
		require.Equal(f, store.LockOrphan, byKey["lock:gone:1"].State)
		require.Equal(f, "no such job", byKey["lock:gone:1"].HolderText())
		require.Nil(f, byKey["lock:gone:1"].Holder)
		require.Equal(f, "foreign", byKey["lock:ruby:1"].HolderText())
		require.InDelta(f, 500, *byKey["lock:ruby:1"].TTLS, 60)
		require.Nil(f, byKey["lock:ruby:1"].AgeS)

		some, cut, err := view.Locks(ctx, f.store, store.TimeoutLock, 2)
		require.NoError(f, err)
		require.True(f, cut)
		require.Len(f, some, 2)

		for _, name := range []string{"Sync[42]", "locket:job_locks:Sync[42]"} {
			l, err := view.FindLock(ctx, f.store, name)
			require.NoError(f, err)
			require.Equal(f, held.Key, l.Key)
			require.NoError(f, l.Detail(ctx, f.store))
			require.Equal(f, proc, l.Process)
			require.Equal(f, job.Fence, l.Fence)
			require.JSONEq(f, `{"class":"Sync","args":[42]}`, l.Payload)
		}
		l, err := view.FindLock(ctx, f.store, long[:view.MaxName-len("…")]+"…")
		require.NoError(f, err, "as it is shown")
		require.Equal(f, long, l.Key)
		_, err = view.FindLock(ctx, f.store, "nope")
		requireNotFound(f.T, err, "lock", "nope", held.Key)
		f.do("SET", "loner:lock:gone:1", "true")
		_, err = view.FindLock(ctx, f.store, "gone:1")
		var several *view.AmbiguousError
		require.ErrorAs(f, err, &several)
		require.ElementsMatch(f, []string{"lock:gone:1", "loner:lock:gone:1"}, several.Matches)
	})
}

func TestLockedQueues(t *testing.T) {
	views(t, func(f *fixture) {
		f.push("some", `{"class":"A","args":[]}`, `{"class":"A","args":[]}`)
		f.push("all", `{"class":"A","args":[]}`)
		f.push("none", `{"class":"A","args":[]}`)
		f.do("HSET", "locket:queue_lock_counters", "some", 1, "all", 2)
		since := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
		f.do("SET", "resqued:seen:all", fmt.Sprintf("1 %d", since.UnixMilli()))
		f.do("SADD", "resqued:blocked:all", "k1", "k2")
		queues, err := view.LockedQueues(f.Context(), f.store)
		require.NoError(f, err)
		require.Len(f, queues, 2)
		require.InDelta(f, 60, *queues[0].SinceS, 30)
		queues[0].SinceS = nil
		require.Equal(f, []view.LockedQueue{
			{Queue: "all", State: view.QueueStarved, Locked: 1, Size: 1, Locks: 2, Since: since},
			{Queue: "some", State: view.QueueWaits, Locked: 1, Size: 2},
		}, queues)
	})
}

func TestUniqueQueues(t *testing.T) {
	views(t, func(f *fixture) {
		ctx := f.Context()
		f.push("ok", "a")
		f.do("SADD", "queue:ok:uniqueue", "a")
		f.do("RPUSH", "queue:ok:start_at", "1")
		f.push("out", "a")
		f.do("SADD", "queue:out:uniqueue", "b", "c")
		f.push("broken", "a")
		f.do("SET", "queue:broken:uniqueue", "x")
		f.push("plain", "a")
		configured := func(queue string) bool { return queue == "ok" || queue == "broken" }
		queues, err := view.UniqueQueues(ctx, f.store, configured)
		require.NoError(f, err)
		states := map[string]string{}
		for _, q := range queues {
			states[q.Queue] = q.State
			require.Equal(f, configured(q.Queue), q.Configured)
			require.Equal(f, q.State == view.UniqueBroken, q.Size == nil)
			require.Equal(f, q.State == view.UniqueBroken, q.Problem != "")
		}
		require.Equal(f, map[string]string{"ok": view.UniqueOK, "out": view.UniqueOutOfStep, "broken": view.UniqueBroken}, states)
		named, err := view.UniqueQueues(ctx, f.store, configured, "plain")
		require.NoError(f, err)
		require.Len(f, named, 1, "one that is named is shown, unique or not")
		_, err = view.UniqueQueues(ctx, f.store, configured, "nope")
		requireNotFound(f.T, err, "queue", "nope", "plain")
	})
}
