package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestSharedLooks: for a while, an answer without jobs serves all callers with the same question; an
// answer with jobs is not shared.
func TestSharedLooks(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		const share = time.Hour
		look := func(f *fixture, r store.PollRequest) store.PollReply {
			f.t.Helper()
			reply, err := f.Poll(f.t.Context(), r)
			require.NoError(f.t, err)
			return reply
		}
		setup := func(t *testing.T, server *redistest.Server, change ...func(*store.Options)) *fixture {
			f := setup(t, server, change...)
			for _, master := range []string{"one", "two"} {
				_, err := f.PutMaster(t.Context(), store.MasterInfo{ID: master, TTL: time.Hour})
				require.NoError(t, err)
			}
			return f
		}
		fixed := store.PollRequest{Fixed: []string{"q", "r"}, Share: share}
		all := store.PollRequest{All: true, Share: share}
		t.Run("nothing", func(t *testing.T) {
			for _, ask := range []store.PollRequest{fixed, all} {
				f := setup(t, server)
				require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), "q", "r", "s").Err())
				first := look(f, ask)
				require.False(t, first.Shared)
				second := look(f, ask)
				require.True(t, second.Shared)
				require.Equal(t, 2, first.Masters)
				second.Shared, second.Masters = false, 2
				require.Equal(t, first, second)

				f.push("q", job("A", "[1]"))
				require.Empty(t, look(f, ask).Reasons.With(store.Free), "it is not looked for")
				fresh, others := ask, ask
				fresh.Fresh, others.Share = true, share/2
				require.Equal(t, []string{"q"}, look(f, others).Reasons.With(store.Free), "others ask something else")
				require.Equal(t, []string{"q"}, look(f, store.PollRequest{Fixed: []string{"qr"}, All: true, Share: share}).Reasons.With(store.Free))
				require.True(t, look(f, ask).Shared)
				require.Equal(t, []string{"q"}, look(f, fresh).Reasons.With(store.Free))
				require.Equal(t, []string{"q"}, look(f, ask).Reasons.With(store.Free), "who finds something tells the others")
				require.Equal(t, []string{"q"}, look(f, ask).Reasons.With(store.Free))
			}
		})
		t.Run("not for ever", func(t *testing.T) {
			f := setup(t, server)
			require.False(t, look(f, fixed).Shared)
			keys := f.redis.Keys(t.Context(), f.key("resqued:look:*")).Val()
			require.Len(t, keys, 1)
			left := f.redis.PTTL(t.Context(), keys[0]).Val()
			require.Positive(t, left)
			require.LessOrEqual(t, left, share)
			require.NoError(t, f.redis.Del(t.Context(), keys[0]).Err())
			require.False(t, look(f, fixed).Shared)
			require.NoError(t, f.redis.Del(t.Context(), keys[0]).Err())
			require.NoError(t, f.redis.RPush(t.Context(), keys[0], "x").Err())
			require.False(t, look(f, fixed).Shared, "a list")
			f.push("q", job("A", "[1]"))
			require.NoError(t, f.redis.Del(t.Context(), keys[0]).Err())
			require.NoError(t, f.redis.Set(t.Context(), keys[0], "0", 2*share).Err())
			require.Equal(t, []string{"q"}, look(f, fixed).Reasons.With(store.Free), "the clock was set back since")
			require.NoError(t, f.redis.Set(t.Context(), keys[0], "0", 0).Err())
			require.Equal(t, []string{"q"}, look(f, fixed).Reasons.With(store.Free), "it has no end")
		})
		t.Run("not with one daemon", func(t *testing.T) {
			f := setup(t, server)
			_, err := f.DropMaster(t.Context(), "two")
			require.NoError(t, err)
			require.False(t, look(f, all).Shared)
			require.False(t, look(f, all).Shared)
			require.Empty(t, f.redis.Keys(t.Context(), f.key("resqued:look:*")).Val())
		})
		t.Run("not asked for", func(t *testing.T) {
			f := setup(t, server)
			require.False(t, look(f, store.PollRequest{All: true}).Shared)
			require.Empty(t, f.redis.Keys(t.Context(), f.key("resqued:look:*")).Val())
		})
		t.Run("what is found besides queues that can be worked", func(t *testing.T) {
			for name, put := range map[string]func(f *fixture){
				"paused": func(f *fixture) {
					f.push("q", job("A", "[1]"))
					_, _, err := f.Pause(f.t.Context(), "q", store.PauseOptions{})
					require.NoError(f.t, err)
				},
				"due": func(f *fixture) { f.delayed(time.UnixMilli(1), "later:1#1", "q", job("A", "[1]")) },
				"locked": func(f *fixture) {
					f.push("q", job("A", "[1]"), job("A", "[1]"))
					require.Len(f.t, f.reserve(1, "q"), 1)
					require.Empty(f.t, f.reserve(1, "q"))
				},
				"suspects": func(f *fixture) {
					require.NoError(f.t, f.redis.SAdd(f.t.Context(), f.key("resqued:suspects"), "q").Err())
					require.NoError(f.t, f.redis.RPush(f.t.Context(), f.key("resqued:suspects:q"), "- "+job("A", "[1]")).Err())
				},
			} {
				f := setup(t, server, func(o *store.Options) { o.Namespace += name })
				put(f)
				look(f, fixed)
				require.False(t, look(f, fixed).Shared, name)
			}
		})
	})
}

// TestWalk: of very many queues, those that recently held jobs are checked at once, the others in
// parts that all callers share.
func TestWalk(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		const many = 5000
		setup := func(t *testing.T) *fixture {
			f := setup(t, server)
			names := make([]any, many)
			for i := range many {
				names[i] = fmt.Sprintf("q%d", i)
			}
			require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), names...).Err())
			return f
		}
		look := func(f *fixture, r store.PollRequest) store.PollReply {
			f.t.Helper()
			r.All = true
			reply, err := f.Poll(f.t.Context(), r)
			require.NoError(f.t, err)
			require.Equal(f.t, "0", reply.Cursor, "it is over")
			require.GreaterOrEqual(f.t, reply.Known, many)
			return reply
		}
		at := func(f *fixture) (cursor, due string) {
			cursor, due, _ = strings.Cut(f.redis.Get(f.t.Context(), f.key("resqued:walk")).Val(), " ")
			return cursor, due
		}
		goOn := func(f *fixture) { // the next part is due
			cursor, _ := at(f)
			require.NoError(f.t, f.redis.Set(f.t.Context(), f.key("resqued:walk"), cursor+" 0", 0).Err())
		}
		stay := func(f *fixture) { // it is not, for the 90 ms after the server's time
			cursor, _ := at(f)
			now, err := f.redis.Time(f.t.Context()).Result()
			require.NoError(f.t, err)
			require.NoError(f.t, f.redis.Set(f.t.Context(), f.key("resqued:walk"), fmt.Sprint(cursor, " ", now.Add(89*time.Millisecond).UnixMilli()), 0).Err())
		}
		// find looks until a queue is found, by several callers.
		find := func(f *fixture, queue string) (looks int) {
			for looks = 1; looks <= many/400; looks++ {
				if found := look(f, store.PollRequest{Fixed: []string{fmt.Sprint("caller ", looks)}}).Reasons.With(store.Free); len(found) > 0 {
					require.Equal(f.t, []string{queue}, found)
					return looks
				}
				goOn(f)
			}
			require.Fail(f.t, "it is not found")
			return 0
		}
		t.Run("every queue is reached", func(t *testing.T) {
			f := setup(t)
			seen := map[int]bool{}
			for _, queue := range []string{"q0", "q17", "q2500", "q4321", "q4999"} {
				require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:walk")).Err())
				f.push(queue, job("A", "[1]"))
				seen[find(f, queue)] = true
				require.NoError(t, f.redis.Del(t.Context(), f.key("queue:"+queue)).Err())
			}
			require.Greater(t, len(seen), 1, "they are not all in one part")
		})
		t.Run("one that was found is found again at once", func(t *testing.T) {
			f := setup(t)
			f.push("q1234", job("A", "[1]"))
			find(f, "q1234")
			for range many / 400 { // a whole walk
				goOn(f)
				require.Equal(t, []string{"q1234"}, look(f, store.PollRequest{}).Reasons.With(store.Free))
			}
			require.NoError(t, f.redis.Del(t.Context(), f.key("queue:q1234")).Err())
			require.Empty(t, look(f, store.PollRequest{}).Reasons.With(store.Free))
			f.push("q1234", job("A", "[1]"))
			_, _, err := f.Pause(t.Context(), "q1234", store.PauseOptions{})
			require.NoError(t, err)
			require.Equal(t, []string{"q1234"}, look(f, store.PollRequest{}).Reasons.With(store.Paused))
			_, err = f.Resume(t.Context(), "q1234")
			require.NoError(t, err)
			require.Equal(t, []string{"q1234"}, look(f, store.PollRequest{}).Reasons.With(store.Free))
			require.Equal(t, []string{"q7"}, func() []string {
				require.NoError(t, f.redis.Del(t.Context(), f.key("queue:q1234")).Err())
				f.push("q7", job("A", "[1]"))
				return look(f, store.PollRequest{Fixed: []string{"q7"}}).Reasons.With(store.Free)
			}(), "one with a name is looked at each time")
		})
		t.Run("at most so often", func(t *testing.T) {
			f := setup(t)
			look(f, store.PollRequest{})
			require.Eventually(t, func() bool { // the machine may be slow
				stay(f)
				before, _ := at(f)
				look(f, store.PollRequest{})
				after, _ := at(f)
				return before == after
			}, time.Minute, time.Millisecond)
			for _, odd := range []string{"99999999999999", "", "x"} { // the clock was set back, or nonsense
				cursor, _ := at(f)
				require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:walk"), cursor+" "+odd, 0).Err())
				look(f, store.PollRequest{})
				next, due := at(f)
				require.NotEqual(t, odd, due)
				require.NotEmpty(t, next)
			}
		})
		t.Run("those found last stay", func(t *testing.T) {
			f := setup(t)
			pipe := f.redis.Pipeline()
			for i := range many {
				pipe.RPush(t.Context(), f.key(fmt.Sprintf("queue:q%d", i)), job("A", "[1]"))
			}
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
			found := map[string]bool{}
			for range many / 400 {
				reply := look(f, store.PollRequest{})
				require.LessOrEqual(t, len(reply.Reasons), 2100)
				for queue, why := range reply.Reasons {
					require.Equal(t, store.Free, why)
					found[queue] = true
				}
				goOn(f)
			}
			require.Len(t, found, many)
			require.EqualValues(t, 1000, f.redis.ZCard(t.Context(), f.key("resqued:recent")).Val())
			require.Positive(t, f.redis.PTTL(t.Context(), f.key("resqued:recent")).Val())
		})
		t.Run("an answer for all", func(t *testing.T) {
			f := setup(t)
			for _, master := range []string{"one", "two"} {
				_, err := f.PutMaster(t.Context(), store.MasterInfo{ID: master, TTL: time.Hour})
				require.NoError(t, err)
			}
			ask := store.PollRequest{Share: time.Hour}
			require.False(t, look(f, ask).Shared)
			require.True(t, look(f, ask).Shared)
			f.push("q3", job("A", "[1]"))
			find(f, "q3")
			require.True(t, look(f, ask).Shared)
			fresh := ask
			fresh.Fresh = true
			require.Equal(t, []string{"q3"}, look(f, fresh).Reasons.With(store.Free))
			require.Equal(t, []string{"q3"}, look(f, ask).Reasons.With(store.Free))
		})
		t.Run("keys of another type", func(t *testing.T) {
			f := setup(t)
			require.NoError(t, f.redis.RPush(t.Context(), f.key("resqued:walk"), "x").Err())
			require.NoError(t, f.redis.RPush(t.Context(), f.key("resqued:recent"), "x").Err())
			f.push("q3", job("A", "[1]"))
			find(f, "q3")
		})
	})
}

// TestWalkOnAFullServer: the walk goes on where only what frees memory may be written.
func TestWalkOnAFullServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	for i := range 3000 {
		f.redis.SAdd(t.Context(), f.key("queues"), fmt.Sprintf("q%d", i))
	}
	require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	cursors := map[string]bool{}
	for range 3 {
		_, err := f.Poll(t.Context(), store.PollRequest{All: true})
		require.NoError(t, err)
		cursor, _, _ := strings.Cut(f.redis.Get(t.Context(), f.key("resqued:walk")).Val(), " ")
		cursors[cursor] = true
		require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
		require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:walk"), cursor+" 0", 0).Err())
		require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	}
	require.Len(t, cursors, 3)
}
