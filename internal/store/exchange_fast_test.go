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
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestFastPath has what many jobs of one plain call have in common, and what the model
// meets too seldom.
func TestFastPath(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("of many locks only those that are still held by the jobs are released", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
			jobs := f.reserve(3, "q")
			require.Len(t, jobs, 3)
			require.NoError(t, f.redis.Set(t.Context(), jobs[1].LockKey, "somebody", time.Minute).Err())
			reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0]), done(jobs[1]), done(jobs[2])}})
			require.Equal(t, []bool{true, true, true}, reply.Applied)
			require.False(t, f.exists(jobs[0].LockKey))
			require.Equal(t, "somebody", f.redis.Get(t.Context(), jobs[1].LockKey).Val())
			require.False(t, f.exists(jobs[2].LockKey))
		})
		t.Run("of many completions each counts for itself", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
			jobs := f.reserve(3, "q")
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[1])}})
			reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0]), done(jobs[1]), done(jobs[2])}})
			require.Equal(t, []bool{true, false, true}, reply.Applied)
			require.Equal(t, "3", f.redis.Get(t.Context(), f.key("stat:processed")).Val())
			require.False(t, f.exists("resqued:inflight:p1"))
		})
		t.Run("a completion that is told twice counts once", func(t *testing.T) {
			f := setup(t, server)
			for i := range 30 { // with few of many completed the script goes another way
				f.push("q", job("A", fmt.Sprintf("[%d]", i)))
			}
			jobs := f.reserve(30, "q")
			for i, rest := range [][]store.Reserved{jobs[:1], jobs[1:]} {
				var c []store.Completion
				for _, j := range rest {
					c = append(c, done(j))
				}
				reply := f.exchange(store.ExchangeRequest{Completions: append(c, done(rest[0]))})
				require.Equal(t, []bool{true, false}, []bool{reply.Applied[0], reply.Applied[len(c)]})
				require.False(t, f.exists(rest[0].LockKey))
				require.Equal(t, []string{"1", "30"}[i], f.redis.Get(t.Context(), f.key("stat:processed")).Val())
			}
		})
		t.Run("fences grow though the clock went back", func(t *testing.T) {
			f := setup(t, server)
			ahead := time.Now().Add(time.Hour).UnixMicro()/1000000*1000000 - 2 // crosses a full second
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:fence"), ahead, 0).Err())
			last := ahead
			for call := range 3 {
				for i := range 3 {
					f.push("q", job("A", fmt.Sprintf("[%d%d]", call, i)))
				}
				jobs := f.reserve(3, "q")
				require.Len(t, jobs, 3)
				for _, j := range jobs {
					require.Greater(t, j.Fence, last)
					last = j.Fence
				}
			}
		})
		t.Run("many queues are looked at in their order", func(t *testing.T) {
			f := setup(t, server)
			var queues []store.Queue
			for i := range 100 {
				q := store.Queue{Name: fmt.Sprintf("q\x00%d", i), Locked: i%3 != 0}
				if i == 70 {
					q.Name = strings.Repeat("long", 100)
				}
				queues = append(queues, q)
			}
			take := func(n int) (from []string) {
				reply := f.exchange(store.ExchangeRequest{Queues: queues, Wants: f.wants(n)})
				for _, j := range reply.Jobs {
					from = append(from, j.Queue)
				}
				return from
			}
			push := func(at ...int) (names []string) {
				for _, i := range at {
					f.push(queues[i].Name, job("A", fmt.Sprintf("[%d]", i)))
					names = append(names, queues[i].Name)
				}
				return names
			}
			want := push(0, 7, 8, 23, 24, 40, 41, 70, 99)
			require.Equal(t, want[:5], take(5))
			require.Equal(t, want[5:], take(5))
			require.Empty(t, take(5))

			want = push(30, 50, 51, 60)
			require.NoError(t, f.redis.Set(t.Context(), f.key("pause:queue:"+want[1]), "true", 0).Err())
			require.NoError(t, f.redis.Set(t.Context(), f.key("queue:"+queues[35].Name), "no list", 0).Err())
			reply := f.exchange(store.ExchangeRequest{Queues: queues, Wants: f.wants(5)})
			require.Equal(t, []string{queues[35].Name}, reply.WrongType)
			require.Len(t, reply.Jobs, 3)
			require.Equal(t, []string{want[0], want[2], want[3]}, []string{reply.Jobs[0].Queue, reply.Jobs[1].Queue, reply.Jobs[2].Queue})
			require.EqualValues(t, 1, f.redis.LLen(t.Context(), f.key("queue:"+want[1])).Val())
		})
		t.Run("a reply does not grow without end", func(t *testing.T) {
			f := setup(t, server)
			for i := range 12 {
				f.push("q", job("A", fmt.Sprintf(`[%d,"%s"]`, i, strings.Repeat("x", 1<<20))))
			}
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(12), Queues: locked("q")})
			require.Len(t, reply.Jobs, 4)
			require.True(t, reply.More)
			require.EqualValues(t, 8, f.redis.LLen(t.Context(), f.key("queue:q")).Val())
		})
		t.Run("a reply that is full says that nobody looked at the other queues", func(t *testing.T) {
			for _, limit := range []int{0, 9} { // with a limit it does not take the fast path
				f := setup(t, server)
				for i := range 4 {
					f.push("q", job("A", fmt.Sprintf(`[%d,"%s"]`, i, strings.Repeat("x", 1<<20))))
				}
				f.push("r", job("A", "[]"))
				queues := locked("q", "r")
				queues[0].Cap = limit
				reply := f.exchange(store.ExchangeRequest{Master: "m", Wants: f.wants(12), Queues: queues})
				require.Len(t, reply.Jobs, 4)
				require.True(t, reply.More)
				require.False(t, f.exchange(store.ExchangeRequest{Master: "m", Wants: f.wants(12), Queues: queues}).More)
			}
		})
		t.Run("few large payloads are read behind small ones", func(t *testing.T) {
			for _, large := range []string{"q", "r"} {
				f := setup(t, server)
				require.NoError(t, storetest.Alter(f.Redis(), "exchange_take", `local size, tight = 0, false`,
					`local size, tight = 0, false
					for _ = 1, #payloads do call('INCR', prefix .. 'read') end`))
				for i := range 5 {
					f.push("q", job("A", fmt.Sprintf("[%d]", i)))
				}
				for i := range 50 {
					f.push(large, job("B", fmt.Sprintf(`[%d,"%s"]`, i, strings.Repeat("x", 600000))))
				}
				reply := f.exchange(store.ExchangeRequest{Wants: f.wants(55), Queues: locked("q", "r")})
				require.Len(t, reply.Jobs, 12)
				read, err := f.redis.Get(t.Context(), f.key("read")).Int()
				require.NoError(t, err)
				require.LessOrEqual(t, read, 20)
			}
		})
	})
}

// TestLocksTakenTogether has what one command for many locks must not change.
func TestLocksTakenTogether(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("they get their time to live with the first beat", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
			beat := store.BeatRequest{Proc: "p1"}
			for _, j := range f.reserve(2, "q") {
				require.Negative(t, f.redis.TTL(t.Context(), j.LockKey).Val())
				beat.Jobs = append(beat.Jobs, store.Running{Token: j.Token, LockKey: j.LockKey})
			}
			require.Len(t, beat.Jobs, 2)
			beat.Jobs = append(beat.Jobs, store.Running{Token: "none"})
			reply, err := f.Beat(t.Context(), beat)
			require.NoError(t, err)
			require.Empty(t, reply.Lost)
			for _, j := range beat.Jobs[:2] {
				require.Positive(t, f.redis.TTL(t.Context(), j.LockKey).Val())
			}
			require.Positive(t, f.redis.TTL(t.Context(), f.reserve(1, "q")[0].LockKey).Val(), "one alone has it at once")
		})
		t.Run("two jobs with one lock do not run at the same time", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", append(lockmates("A", 2), lockmates("B", 1)...)...)
			require.Equal(t, []string{lockmates("A", 1)[0], lockmates("B", 1)[0]}, payloads(f.reserve(3, "q")))
		})
		t.Run("one that is held keeps none of the others", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[2]"))
			held := f.reserve(1, "q")
			f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
			require.Equal(t, []string{job("A", "[1]"), job("A", "[3]")}, payloads(f.reserve(3, "q")))
			require.Equal(t, []bool{true}, f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(held[0])}}).Applied)
		})
		t.Run("a job for which the reply has no room has no lock", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, storetest.Alter(f.Redis(), "exchange_start", `maxbytes = 0, 4194304`, `maxbytes = 0, 10`))
			f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
			require.Equal(t, []string{job("A", "[1]")}, payloads(f.reserve(3, "q")))
			require.Len(t, f.redis.Keys(t.Context(), f.key("locket:job_locks:*")).Val(), 1)
			require.Equal(t, []string{job("A", "[2]")}, payloads(f.reserve(3, "q")))
		})
		t.Run("they are in no way once their process is gone", func(t *testing.T) {
			for name, gone := range map[string]func(*fixture){
				"fenced": func(f *fixture) {
					require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:procs"), redis.Z{Member: "p2"}).Err())
				},
				"unknown": func(f *fixture) { require.NoError(t, f.redis.ZRem(t.Context(), f.key("resqued:procs"), "p2").Err()) },
			} {
				f := setup(t, server)
				f.register("p2")
				f.push("q", job("A", "[1]"), job("A", "[2]"))
				require.Len(t, f.exchange(store.ExchangeRequest{Proc: "p2", Wants: f.wants(2), Queues: locked("q")}).Jobs, 2)
				f.push("q", job("A", "[1]"))
				f.push("r", job("A", "[2]"))
				require.Empty(t, f.reserve(1, "q"))
				require.Empty(t, f.turn(1, nil, "r"))
				gone(f)
				require.Contains(t, f.look(store.PollRequest{All: true}).Reasons.With(store.Free), "r", name)
				require.Len(t, f.turn(1, nil, "r"), 1, name)
				f.look(store.PollRequest{All: true})
				require.Len(t, f.reserve(1, "q"), 1, name)
			}
		})
	})
}

// TestFastPathOnAFullServer begins with a write that the server accepts.
func TestFastPathOnAFullServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
	require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.Len(t, f.reserve(2, "q"), 2)
	require.Len(t, f.reserve(1, "q"), 1)
}

// TestThousandsInOneCall has more of everything than a script can unpack at once.
func TestThousandsInOneCall(t *testing.T) {
	t.Parallel()
	const jobs = 9000
	f := setup(t, redistest.Shared(t))
	for _, q := range []string{"q", "r"} {
		payloads := make([][]byte, jobs/2)
		for i := range payloads {
			payloads[i] = []byte(job("A", fmt.Sprintf("[%q,%d]", q, i)))
		}
		_, err := f.Push(t.Context(), q, payloads...)
		require.NoError(t, err)
	}
	reply := f.exchange(store.ExchangeRequest{Wants: f.wants(jobs), Queues: locked("q", "r")})
	require.Len(t, reply.Jobs, jobs)
	require.EqualValues(t, jobs, f.redis.HLen(t.Context(), f.key("resqued:inflight:p1")).Val())
	require.Empty(t, f.list("queue:q"))
	var c []store.Completion
	for _, j := range reply.Jobs {
		c = append(c, done(j))
	}
	reply = f.exchange(store.ExchangeRequest{Completions: c})
	require.NotContains(t, reply.Applied, false)
	require.Equal(t, fmt.Sprint(jobs), f.redis.Get(t.Context(), f.key("stat:processed")).Val())
	require.False(t, f.exists(`locket:job_locks:A["q",0]`))
}
