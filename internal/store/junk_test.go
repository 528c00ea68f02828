package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestFenceJunk has something stand where fences are counted from which none can go on: no
// locked job is taken, all stay where they are, and the others are worked.
func TestFenceJunk(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, junk := range []string{"9223372036854775807", "9007199254740993", "99999999999999999999999", "inf", "nan", "junk", "1e300", "1.5", "0x10", ""} {
			t.Run("junk "+junk, func(t *testing.T) { testFenceJunk(t, server, junk) })
		}
		t.Run("a fence that was counted down counts", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:fence"), "-5", 0).Err())
			f.push("q", job("A", "[1]"))
			require.Greater(t, f.reserve(1, "q")[0].Fence, int64(1e15))
		})
		t.Run("a key of another type", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.SAdd(t.Context(), f.key("resqued:fence"), "x").Err())
			f.push("q", job("A", "[1]"))
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q")})
			require.Empty(t, reply.Jobs)
			require.Contains(t, reply.Unlockable, "resqued:fence")
			require.Len(t, f.list("queue:q"), 1)
		})
	})
}

func testFenceJunk(t *testing.T, server *redistest.Server, junk string) {
	payloads := []string{job("A", "[0]"), job("A", "[1]"), job("A", "[2]"), job("A", "[3]")}
	free := store.Queue{Name: "free"}
	for name, c := range map[string]struct {
		queue store.Queue
		wants int
		how   store.Suspects
	}{
		"one by one":               {queue: store.Queue{Name: "q", Locked: true}, wants: 1},
		"many":                     {queue: store.Queue{Name: "q", Locked: true}, wants: 4},
		"capped":                   {queue: store.Queue{Name: "q", Locked: true, Cap: 3}, wants: 4},
		"unique":                   {queue: store.Queue{Name: "q", Locked: true, Unique: true}, wants: 4},
		"suspects":                 {queue: store.Queue{Name: "q", Locked: true}, wants: 1, how: store.OnlySuspects},
		"the first one is locked":  {queue: store.Queue{Name: "q", Locked: true}, wants: 2},
		"two of the same, at once": {queue: store.Queue{Name: "q", Locked: true}, wants: 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, server)
			before := payloads
			switch name {
			case "unique":
				f.pushUnique("q", payloads...)
			case "suspects":
				f.push("q", payloads[0])
				f.dies(store.Suspect, f.reserve(1, "q")...)
				f.register("p1")
				require.Empty(t, f.want(1, store.SetApart, c.queue).Jobs)
				before = nil
			case "the first one is locked":
				require.NoError(t, f.redis.Set(t.Context(), f.key("locket:job_locks:A[0]"), "", time.Minute).Err())
				f.push("q", payloads...)
			case "two of the same, at once":
				before = []string{payloads[0], payloads[0]}
				f.push("q", before...)
			default:
				f.push("q", payloads...)
			}
			f.push("free", job("B", "[1]"))
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:fence"), junk, 0).Err())

			for range 2 { // what the first call leaves behind must not mislead the second
				reply := f.exchange(store.ExchangeRequest{Wants: f.wants(c.wants), Queues: []store.Queue{c.queue}, Suspects: c.how})
				require.Empty(t, reply.Jobs)
				require.Contains(t, reply.Unlockable, "resqued:fence")
				require.False(t, reply.More, "nobody asks again at once")
				require.ElementsMatch(t, before, f.list("queue:q"))
				require.False(t, f.exists("locket:job_locks:A[1]"))
				require.False(t, f.exists("resqued:inflight:p1"))
				require.Equal(t, junk, f.redis.Get(t.Context(), f.key("resqued:fence")).Val(), "it is for a person to see")
			}
			if c.how != store.OnlySuspects {
				reply := f.exchange(store.ExchangeRequest{Wants: f.wants(c.wants), Queues: []store.Queue{c.queue, free}})
				require.Len(t, reply.Jobs, 1, "what needs no lock is worked")
				require.Equal(t, "free", reply.Jobs[0].Queue)
				f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(reply.Jobs[0])}})
			}

			require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:fence")).Err())
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: []store.Queue{c.queue}, Suspects: c.how})
			require.Len(t, reply.Jobs, 1)
			require.Empty(t, reply.Unlockable)
			if c.queue.Unique {
				require.EqualValues(t, 3, f.redis.SCard(t.Context(), f.key("queue:q:uniqueue")).Val())
				require.EqualValues(t, 3, f.redis.LLen(t.Context(), f.key("queue:q:start_at")).Val())
			}
		})
	}
}

// TestDeathsJunk: what a stranger wrote into the deaths of a job does not make its record
// unreadable.
func TestDeathsJunk(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"))
		f.dies(store.Requeue, f.reserve(1, "q")...)
		f.register("p1")
		for field := range f.redis.HGetAll(t.Context(), f.key("resqued:deaths:q")).Val() {
			require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:deaths:q"), field, "99999999999999999999999 99999999999999999999999").Err())
		}
		reply := f.want(1, store.TakeSuspects, locked("q")...)
		require.Len(t, reply.Jobs, 1)
		require.Equal(t, 999999999, reply.Jobs[0].Deaths)
	})
}

// TestCapJunk: where the count of a cap is none, the cap holds from then on.
func TestCapJunk(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, junk := range []string{"junk", "nan", "inf", "9223372036854775807", "-9223372036854775808", "-1000", "0.5"} {
			t.Run(junk, func(t *testing.T) {
				if server.Socket == "" && junk == "9223372036854775807" {
					t.Skip("miniredis counts past the largest number")
				}
				f := setup(t, server)
				queues := []store.Queue{{Name: "q", Cap: 1}}
				f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
				require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:caps:m"), "q", junk).Err())
				reply := f.exchange(store.ExchangeRequest{Master: "m", Wants: f.wants(1), Queues: queues})
				require.Len(t, reply.Jobs, 1)
				if junk != "-1000" && junk != "-9223372036854775808" {
					require.Empty(t, f.exchange(store.ExchangeRequest{Master: "m", Wants: f.wants(1), Queues: queues}).Jobs)
				}
				f.exchange(store.ExchangeRequest{Master: "m", Completions: []store.Completion{{Job: &reply.Jobs[0], Kind: store.Done}}})
				require.False(t, f.exists("resqued:caps:m"))
			})
		}
	})
}

// TestGraceJunk: what a stranger wrote into resqued:meta does not keep the jobs of the dead
// from being recovered.
func TestGraceJunk(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, field := range []string{"grace", "beat", "paces"} {
			for _, junk := range []string{"junk", "nan", "", "9223372036854775807", "-1", strings.Repeat("9999999999999999999:9:9999999999999999999 ", 9)} {
				t.Run(field+" "+junk, func(t *testing.T) {
					f := setup(t, server)
					f.endLease("p1")
					require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:meta"), field, junk).Err())
					procs, _, err := f.Orphans(t.Context())
					require.NoError(t, err)
					require.Equal(t, []string{"p1"}, procs)
					f.register("p2")
					require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:relock")).Err())
					f.beat("p2")
				})
			}
		}
	})
}
