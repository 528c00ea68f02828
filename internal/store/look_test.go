package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

// TestSharedLooks: an answer that has found nothing counts for all who ask the same, for a while;
// one that has found something counts for nobody else.
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
				second.Shared = false
				require.Equal(t, first, second)

				f.push("q", job("A", "[1]"))
				require.Empty(t, look(f, ask).Waiting, "it is not looked for")
				fresh, others := ask, ask
				fresh.Fresh, others.Share = true, share/2
				require.Equal(t, []string{"q"}, look(f, others).Waiting, "others ask something else")
				require.Equal(t, []string{"q"}, look(f, store.PollRequest{Fixed: []string{"qr"}, All: true, Share: share}).Waiting)
				require.True(t, look(f, ask).Shared)
				require.Equal(t, []string{"q"}, look(f, fresh).Waiting)
				require.Equal(t, []string{"q"}, look(f, ask).Waiting, "who finds something tells the others")
				require.Equal(t, []string{"q"}, look(f, ask).Waiting)
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
			require.Equal(t, []string{"q"}, look(f, fixed).Waiting, "the clock was set back since")
			require.NoError(t, f.redis.Set(t.Context(), keys[0], "0", 0).Err())
			require.Equal(t, []string{"q"}, look(f, fixed).Waiting, "it has no end")
		})
		t.Run("not with one daemon", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.DropMaster(t.Context(), "two"))
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
					_, err := f.Pause(f.t.Context(), "q")
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
		t.Run("a pass in parts", func(t *testing.T) {
			f := setup(t, server)
			for i := range 3000 {
				require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), fmt.Sprintf("q%d", i)).Err())
			}
			pass := func(share func(reply store.PollReply) time.Duration) (parts int, found []string, shared bool) {
				ask := all
				for {
					reply := look(f, ask)
					parts++
					found = append(found, reply.Waiting...)
					ask.Cursor, ask.Share = reply.Cursor, share(reply)
					if reply.Cursor == "0" {
						return parts, found, reply.Shared
					}
				}
			}
			always := func(store.PollReply) time.Duration { return share }
			parts, _, shared := pass(always)
			require.Greater(t, parts, 2)
			require.False(t, shared)
			parts, _, shared = pass(always)
			require.Equal(t, 1, parts)
			require.True(t, shared)
			require.NoError(t, f.redis.Del(t.Context(), f.redis.Keys(t.Context(), f.key("resqued:look:*")).Val()...).Err())
			f.push("q7", job("A", "[1]"))
			for range 2 {
				next := share
				_, found, shared := pass(func(reply store.PollReply) time.Duration {
					if len(reply.Waiting) > 0 {
						next = 0
					}
					return next
				})
				require.Equal(t, []string{"q7"}, found)
				require.False(t, shared)
			}
		})
	})
}
