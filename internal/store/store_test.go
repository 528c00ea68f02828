package store_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, redistest.Probing())
}

// fixture is a store in a namespace of its own, with one registered process.
type fixture struct {
	*store.Store
	t     *testing.T
	ns    string
	redis *redis.Client
}

func setup(t *testing.T, server *redistest.Server, change ...func(*store.Options)) *fixture {
	t.Helper()
	// Nobody beats for the process of a test that is slow.
	opts := store.Options{URL: server.URL(), Namespace: redistest.Namespace(t), Lease: time.Hour, LockTTL: store.DefaultLease}
	for _, c := range change {
		c(&opts)
	}
	s, err := store.Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	storetest.Patient(s.Redis())
	f := &fixture{Store: s, t: t, ns: opts.Namespace, redis: server.Client(t)}
	f.register("p1")
	return f
}

func (f *fixture) register(proc string) {
	f.t.Helper()
	require.NoError(f.t, f.Register(f.t.Context(), store.Registration{
		Proc: proc, Workers: []string{"h/0.0:1:q", "h/0.1:1:q"}, Started: "2026-11-20 09:56:21 -0500",
		Info: map[string]string{"pid": "1"},
	}))
}

func (f *fixture) key(name string) string { return f.ns + ":" + name }

func (f *fixture) push(queue string, payloads ...string) {
	f.t.Helper()
	for _, p := range payloads {
		_, err := f.Push(f.t.Context(), queue, []byte(p))
		require.NoError(f.t, err)
	}
}

func (f *fixture) exchange(req store.ExchangeRequest) store.ExchangeReply {
	f.t.Helper()
	if req.Proc == "" {
		req.Proc = "p1"
	}
	reply, err := f.Exchange(f.t.Context(), req)
	require.NoError(f.t, err)
	return reply
}

// reserve takes up to n jobs from locked queues.
func (f *fixture) reserve(n int, queues ...string) []store.Reserved {
	f.t.Helper()
	return f.exchange(store.ExchangeRequest{Wants: f.wants(n), Queues: locked(queues...)}).Jobs
}

func (f *fixture) wants(n int) []store.Want {
	wants := make([]store.Want, n)
	for i := range wants {
		wants[i] = store.Want{Token: redistest.Unique(), Worker: "h/0.0:1:q"}
	}
	return wants
}

func locked(names ...string) []store.Queue {
	var out []store.Queue
	for _, name := range names {
		out = append(out, store.Queue{Name: name, Locked: true})
	}
	return out
}

func (f *fixture) list(key string) []string {
	f.t.Helper()
	list, err := f.redis.LRange(f.t.Context(), f.key(key), 0, -1).Result()
	require.NoError(f.t, err)
	return list
}

// exists takes a key with or without the namespace.
func (f *fixture) exists(key string) bool {
	f.t.Helper()
	n, err := f.redis.Exists(f.t.Context(), f.key(strings.TrimPrefix(key, f.key("")))).Result()
	require.NoError(f.t, err)
	return n == 1
}

func done(job store.Reserved) store.Completion { return store.Completion{Job: &job, Kind: store.Done} }

func job(class string, args string) string { return fmt.Sprintf(`{"class":%q,"args":%s}`, class, args) }

// Payloads that a decoder and encoder on the way would change.
var delicate = []string{
	`{"class":"A","args":["<b>&amp;</b>","` + "\u2028" + `"]}`,
	`{"class":"A","args":[{},[],{"a":{}}]}`,
	`{"class":"A","args":[12345678901234567,1e400,-0.0,1.10]}`,
	`{"class":"A",  "args":[1,  2 ], "unknown" : {"x":[]},"id":"4f"}`,
	`{"queue":"q","args":["\u00e9\/"],"class":"A"}`,
	`not json at all`, "\xff\xfe", `[]`, ``, `{"class":"A","args":["]","[[","{"]}`,
}

func TestPayloadBytesSurviveEverything(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for i, payload := range delicate {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				f := setup(t, server)
				f.push("q", payload)
				jobs := f.reserve(1, "q")
				require.Len(t, jobs, 1)
				require.Equal(t, payload, string(jobs[0].Payload))
				require.Empty(t, f.list("queue:q"))

				f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &jobs[0], Kind: store.Requeued}}})
				require.Equal(t, []string{payload}, f.list("queue:q"))

				jobs = f.reserve(1, "q")
				f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &jobs[0], Kind: store.Requeued, Delay: time.Millisecond}}})
				require.Eventually(t, func() bool {
					f.due()
					reply, err := f.Poll(t.Context(), store.PollRequest{Fixed: []string{"q"}})
					require.NoError(t, err)
					return len(reply.Reasons.With(store.Free)) == 1
				}, 30*time.Second, 2*time.Millisecond)
				require.Equal(t, []string{payload}, f.list("queue:q"))

				require.Len(t, f.reserve(1, "q"), 1)
				held, bad, err := f.Fence(t.Context(), "p1", true)
				require.NoError(t, err)
				require.Empty(t, bad)
				require.Len(t, held, 1)
				require.Equal(t, payload, string(held[0].Payload))
				require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Requeue}}))
				require.Equal(t, []string{payload}, f.list("queue:q"))
			})
		}
	})
}

func TestExchange(t *testing.T) {
	t.Parallel()
	redistest.Both(t, testExchange)
}

func testExchange(t *testing.T, server *redistest.Server) {
	t.Run("a job is recorded in the step that pops it, and gone when it is done", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[2]"))
		jobs := f.reserve(1, "q")
		require.Len(t, jobs, 1)
		require.Equal(t, "q", jobs[0].Queue)
		require.Equal(t, f.key("locket:job_locks:A[1]"), jobs[0].LockKey)
		require.WithinDuration(t, time.Now(), jobs[0].StartedAt, time.Minute)
		n, err := f.redis.HLen(t.Context(), f.key("resqued:inflight:p1")).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.True(t, f.exists("locket:job_locks:A[1]"))

		reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0])}, Wants: f.wants(1), Queues: locked("q")})
		require.Equal(t, []bool{true}, reply.Applied)
		require.Len(t, reply.Jobs, 1)
		require.Greater(t, reply.Jobs[0].Fence, jobs[0].Fence)
		require.False(t, f.exists("locket:job_locks:A[1]"))
		processed, failed, err := f.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, processed)
		require.EqualValues(t, 0, failed)
	})

	t.Run("a completion counts once however often it is sent", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"))
		jobs := f.reserve(1, "q")
		c := []store.Completion{{Job: &jobs[0], Kind: store.Failed, Failure: store.Record([]byte(`{"x":1}`))}}
		require.Equal(t, []bool{true}, f.exchange(store.ExchangeRequest{Completions: c}).Applied)
		require.Equal(t, []bool{false}, f.exchange(store.ExchangeRequest{Completions: c}).Applied)
		require.Equal(t, []string{`{"x":1}`}, f.list("failed"))
	})

	t.Run("a repeated want gets back what its token holds", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
		req := store.ExchangeRequest{Wants: f.wants(2), Queues: locked("q")}
		first := f.exchange(req).Jobs
		req.Repeat = true
		again := f.exchange(req).Jobs
		for i := range first {
			first[i].Lined = true // perhaps
		}
		require.Equal(t, first, again)
		require.Len(t, f.list("queue:q"), 1)
	})

	t.Run("a repeated want does not get a job back whose lock has ended meanwhile", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
		req := store.ExchangeRequest{Wants: f.wants(2), Queues: locked("q")}
		first := f.exchange(req).Jobs
		require.NoError(t, f.redis.Del(t.Context(), first[0].LockKey).Err())
		require.NoError(t, f.redis.Set(t.Context(), first[1].LockKey, "somebody's", time.Minute).Err())
		req.Repeat = true
		again := f.exchange(req).Jobs
		require.Len(t, again, 2)
		require.Equal(t, first[0].Payload, again[0].Payload)
		require.Greater(t, again[0].Fence, first[0].Fence, "somebody may have held the lock meanwhile")
		require.Equal(t, job("A", "[3]"), string(again[1].Payload))
		require.Equal(t, []string{job("A", "[2]")}, f.list("queue:q"))
	})

	t.Run("a request that comes after its repetition reserves nothing", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
		late := store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q"), Sending: 1}
		repeated := late
		repeated.Repeat, repeated.Sending = true, 2
		jobs := f.exchange(repeated).Jobs
		require.Len(t, jobs, 1)
		require.Empty(t, f.exchange(late).Jobs, "it would take the place of the job that is recorded")
		require.Len(t, f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0])}, Sending: 3}).Applied, 1)
		require.Empty(t, f.exchange(late).Jobs, "nobody would run what is recorded now")
		require.Len(t, f.list("queue:q"), 2)
		require.Len(t, f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q"), Sending: 4}).Jobs, 1)
	})

	t.Run("a repetition in one lane stops nothing in the other", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"), job("A", "[4]"))
		for lane := range 2 {
			late := store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q"), Lane: lane, Sending: 1}
			other := store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q"), Lane: 1 - lane, Sending: 1}
			repeated := late
			repeated.Repeat, repeated.Sending = true, 2
			require.Len(t, f.exchange(repeated).Jobs, 1)
			if lane == 0 {
				require.Len(t, f.exchange(other).Jobs, 1)
			}
			require.Empty(t, f.exchange(late).Jobs)
		}
	})

	t.Run("jobs with equal class and arguments exclude each other, whatever else differs", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", `[1,"x y"]`), `{"id":"7","args":[ 1, "x y" ],"class":"A"}`, job("A", `[1,"xy"]`), job("B", `[1,"x y"]`))
		jobs := f.reserve(4, "q")
		require.Len(t, jobs, 3)
		require.Equal(t, []string{`{"id":"7","args":[ 1, "x y" ],"class":"A"}`}, f.list("queue:q"))
		require.Equal(t, "1", f.redis.HGet(t.Context(), f.key("locket:queue_lock_counters"), "q").Val())
	})

	t.Run("a queue of locked jobs does not hold up another", func(t *testing.T) {
		f := setup(t, server)
		for range 200 {
			f.push("high", job("A", "[1]"))
		}
		f.push("low", job("B", "[1]"))
		jobs := f.reserve(2, "high", "low")
		require.Len(t, jobs, 2)
		require.Equal(t, "low", jobs[1].Queue)
		require.Len(t, f.list("queue:high"), 199)
	})

	t.Run("a queue that has bounced as often as it is long is skipped until a lock is freed", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[1]"), job("A", "[1]"))
		held := f.reserve(1, "q")
		f.push("other", job("B", "[1]"))
		require.Len(t, f.reserve(1, "q", "other"), 1)
		f.push("other", job("B", "[2]"))
		reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q", "other")})
		require.Len(t, reply.Jobs, 1)
		require.Zero(t, reply.Bounced)
		reply = f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(held[0])}, Wants: f.wants(1), Queues: locked("q")})
		require.Len(t, reply.Jobs, 1)
	})

	t.Run("a foreign lock counts as held, and only its holder's own release removes a lock", func(t *testing.T) {
		f := setup(t, server)
		lock := f.key("locket:job_locks:A[1]")
		require.NoError(t, f.redis.Set(t.Context(), lock, "", time.Minute).Err())
		f.push("q", job("A", "[1]"))
		require.Empty(t, f.reserve(1, "q"))
		require.NoError(t, f.redis.Del(t.Context(), lock).Err())
		reply, err := f.Poll(t.Context(), store.PollRequest{Fixed: []string{"q"}})
		require.NoError(t, err)
		require.Equal(t, []string{"q"}, reply.Reasons.With(store.Free))
		jobs := f.reserve(1, "q")
		require.Len(t, jobs, 1)
		require.NoError(t, f.redis.Set(t.Context(), lock, "stranger", 0).Err())
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0])}})
		require.Equal(t, "stranger", f.redis.Get(t.Context(), lock).Val())
	})

	t.Run("a lock whose record is gone is taken over at once", func(t *testing.T) {
		f := setup(t, server)
		require.NoError(t, f.redis.Set(t.Context(), f.key("locket:job_locks:A[1]"), "resqued:dead#9", time.Minute).Err())
		f.push("q", job("A", "[1]"))
		require.Len(t, f.reserve(1, "q"), 1)
	})

	t.Run("a job whose record somebody has written over is not dropped on its way back", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"))
		jobs := f.reserve(1, "q")
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:inflight:p1"), jobs[0].Token, "x").Err())
		reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &jobs[0], Kind: store.Requeued}}})
		require.Contains(t, reply.Stuck[0], "not one of ours")
		require.True(t, f.exists("resqued:inflight:p1"))
	})

	t.Run("queues that are not locked run equal jobs side by side", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[1]"))
		reply := f.exchange(store.ExchangeRequest{Wants: f.wants(2), Queues: []store.Queue{{Name: "q"}}})
		require.Len(t, reply.Jobs, 2)
		require.Empty(t, reply.Jobs[0].LockKey)
	})

	t.Run("a cap holds over all processes of a master and is given back", func(t *testing.T) {
		f := setup(t, server)
		f.register("p2")
		f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
		queues := []store.Queue{{Name: "q", Cap: 2, Locked: true}}
		one := f.exchange(store.ExchangeRequest{Master: "m", Wants: f.wants(1), Queues: queues}).Jobs
		two := f.exchange(store.ExchangeRequest{Proc: "p2", Master: "m", Wants: f.wants(2), Queues: queues}).Jobs
		require.Len(t, one, 1)
		require.Len(t, two, 1)
		reply := f.exchange(store.ExchangeRequest{Master: "m", Completions: []store.Completion{done(one[0])}, Wants: f.wants(1), Queues: queues})
		require.Len(t, reply.Jobs, 1)
		f.exchange(store.ExchangeRequest{Master: "m", Completions: []store.Completion{done(reply.Jobs[0])}})
		_, _, err := f.Fence(t.Context(), "p2", true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), "p2", []store.Verdict{{Token: two[0].Token, Action: store.Requeue}}))
		require.False(t, f.exists("resqued:caps:m"))
	})

	t.Run("wrong types are skipped and named, and nothing is popped", func(t *testing.T) {
		f := setup(t, server)
		require.NoError(t, f.redis.Set(t.Context(), f.key("queue:odd"), "text", 0).Err())
		f.push("q", job("A", "[1]"), job("A", "[2]"))
		reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: locked("odd", "q")})
		require.Len(t, reply.Jobs, 1)
		require.Equal(t, []string{"odd"}, reply.WrongType)

		require.NoError(t, f.redis.Set(t.Context(), f.key("failed"), "text", 0).Err())
		c := []store.Completion{{Job: &reply.Jobs[0], Kind: store.Failed, Failure: store.Record([]byte(`{}`))}}
		stuck := f.exchange(store.ExchangeRequest{Completions: c})
		require.Equal(t, []bool{false}, stuck.Applied)
		require.Contains(t, stuck.Stuck[0], "failed is not a list")
		require.NoError(t, f.redis.Del(t.Context(), f.key("failed")).Err())
		require.Equal(t, []bool{true}, f.exchange(store.ExchangeRequest{Completions: c}).Applied)

		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:inflight:p1")).Err())
		require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:inflight:p1"), "text", 0).Err())
		_, err := f.Exchange(t.Context(), store.ExchangeRequest{Proc: "p1", Wants: f.wants(1), Queues: locked("q")})
		require.ErrorContains(t, err, "is not a hash")
		require.True(t, rdb.Unexecuted(err))
		require.Len(t, f.list("queue:q"), 1)
	})

	t.Run("a process without a lease gets nothing and changes nothing", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"), job("A", "[2]"))
		jobs := f.reserve(1, "q")
		held, _, err := f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		require.Len(t, held, 1)
		_, err = f.Exchange(t.Context(), store.ExchangeRequest{Proc: "p1", Completions: []store.Completion{done(jobs[0])}, Wants: f.wants(1), Queues: locked("q")})
		require.ErrorIs(t, err, store.ErrFenced)
		_, err = f.Beat(t.Context(), store.BeatRequest{Proc: "p1"})
		require.ErrorIs(t, err, store.ErrFenced)
		require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Requeue}}))
		require.Equal(t, []string{job("A", "[1]"), job("A", "[2]")}, f.list("queue:q"))
		require.False(t, f.exists("locket:job_locks:A[1]"))
		require.Empty(t, f.redis.SMembers(t.Context(), f.key("workers")).Val())
	})

	t.Run("a job that came back from a dead process counts its deaths until it ends", func(t *testing.T) {
		f := setup(t, server)
		f.push("q", job("A", "[1]"))
		for deaths := range 3 {
			jobs := f.reserve(1, "q")
			require.Len(t, jobs, 1)
			require.Equal(t, deaths, jobs[0].Deaths)
			if deaths == 2 {
				f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(jobs[0])}})
				break
			}
			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: jobs[0].Token, Action: store.Requeue}}))
			f.register("p1")
		}
		require.False(t, f.exists("resqued:deaths"))
	})

	t.Run("equal jobs that die together have died once each", func(t *testing.T) {
		f := setup(t, server)
		equal := store.ExchangeRequest{Queues: []store.Queue{{Name: "q"}}}
		for range 4 {
			f.push("q", job("A", "[]"))
		}
		for deaths := range 3 {
			equal.Wants = f.wants(4)
			jobs := f.exchange(equal).Jobs
			require.Len(t, jobs, 4)
			var verdicts []store.Verdict
			for _, j := range jobs {
				require.Equal(t, deaths, j.Deaths)
				verdicts = append(verdicts, store.Verdict{Token: j.Token, Action: store.Requeue})
			}
			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(t.Context(), "p1", verdicts))
			f.register("p1")
		}
	})

	t.Run("a requeued job's queue is known again", func(t *testing.T) {
		f := setup(t, server)
		for _, kind := range []store.Completion{
			{Kind: store.Requeued}, {Kind: store.Returned}, {Kind: store.Requeued, Delay: time.Millisecond},
		} {
			f.push("q", job("A", "[1]"))
			kind.Job = &f.reserve(1, "q")[0]
			// As Ruby's remove_queue does while the job runs.
			require.NoError(t, f.redis.SRem(t.Context(), f.key("queues"), "q").Err())
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{kind}})
			require.Eventually(t, func() bool {
				f.due()
				reply, err := f.Poll(t.Context(), store.PollRequest{All: true})
				require.NoError(t, err)
				return len(reply.Reasons.With(store.Free)) == 1
			}, 30*time.Second, 2*time.Millisecond)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(f.reserve(1, "q")[0])}})
		}
	})

	t.Run("a job that is requeued for ages does not run now", func(t *testing.T) {
		f := setup(t, server)
		for _, kind := range []store.Kind{store.Requeued, store.Retried} {
			f.push("q", job("A", "[1]"))
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{{
				Job: &f.reserve(1, "q")[0], Kind: kind, Delay: math.MaxInt64, Survived: true,
				Failure: store.Record([]byte(`{"exception":"E"}`)), Count: &store.Count{Key: "resque-retry:A", Lifetime: math.MaxInt64},
			}}})
			require.Empty(t, f.list("queue:q"))
			require.Zero(t, f.due().Moved)
		}
		delayed, err := f.dueTimes(t)
		require.NoError(t, err)
		require.Len(t, delayed, 2)
		for _, due := range delayed {
			require.Greater(t, due.Year(), 2300)
		}
	})

	t.Run("recovered jobs stand at the head in the order in which they began", func(t *testing.T) {
		f := setup(t, server)
		for i := range 250 {
			f.push("q", job("A", fmt.Sprintf("[%d]", i)))
		}
		for range 230 {
			require.Len(t, f.reserve(1, "q"), 1)
		}
		held, _, err := f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		var verdicts []store.Verdict
		for _, h := range held {
			verdicts = append(verdicts, store.Verdict{Token: h.Token, Action: store.Requeue})
		}
		require.NoError(t, f.Recover(t.Context(), "p1", verdicts))
		list := f.list("queue:q")
		require.Len(t, list, 250)
		for i, payload := range list {
			require.Equal(t, job("A", fmt.Sprintf("[%d]", i)), payload)
		}
	})
}

func TestBeat(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("names lost locks and missing records, and counts per worker", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
			jobs := f.reserve(3, "q")
			require.NoError(t, f.redis.Del(t.Context(), jobs[0].LockKey).Err())
			require.NoError(t, f.redis.HDel(t.Context(), f.key("resqued:inflight:p1"), jobs[1].Token).Err())
			var running []store.Running
			for _, j := range jobs {
				running = append(running, store.Running{Token: j.Token, LockKey: j.LockKey})
			}
			reply, err := f.Beat(t.Context(), store.BeatRequest{
				Proc: "p1", Jobs: running,
				Info:  map[string]string{"state": "running"},
				Stats: []store.WorkerStat{{Worker: "h/0.0:1:q", Processed: 3, Failed: 1}},
			})
			require.NoError(t, err)
			require.Equal(t, []string{jobs[0].Token}, reply.Lost)
			require.Equal(t, []string{jobs[1].Token}, reply.Gone)
			require.Equal(t, "3", f.redis.Get(t.Context(), f.key("stat:processed:h/0.0:1:q")).Val())
		})

		t.Run("a process that is not dead is not fenced without certainty", func(t *testing.T) {
			f := setup(t, server)
			_, _, err := f.Fence(t.Context(), "p1", false)
			require.ErrorIs(t, err, store.ErrAlive)
			require.ErrorIs(t, f.Recover(t.Context(), "p1", nil), store.ErrAlive)
		})

		t.Run("masters that are gone without a word are forgotten", func(t *testing.T) {
			f := setup(t, server)
			for _, id := range []string{"dead", "alive"} {
				_, err := f.PutMaster(t.Context(), store.MasterInfo{ID: id, Fields: map[string]string{"state": "running"}, TTL: time.Minute})
				require.NoError(t, err)
			}
			require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:master:dead")).Err(), "as if it had expired")
			_, _, err := f.Orphans(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"alive"}, f.redis.SMembers(t.Context(), f.key("resqued:masters")).Val())
		})

		t.Run("leaving removes every key of the process", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"))
			jobs := f.reserve(1, "q")
			held, err := f.Unregister(t.Context(), "p1")
			require.NoError(t, err)
			require.Equal(t, 1, held)
			require.NoError(t, f.WriteMirrors(t.Context(), "p1", []store.Mirror{{Token: jobs[0].Token, Worker: jobs[0].Worker, Value: []byte("{}")}}))
			require.True(t, f.exists("worker:h/0.0:1:q"))
			c := done(jobs[0])
			c.Mirrored = true
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{c}})
			require.False(t, f.exists("worker:h/0.0:1:q"))
			held, err = f.Unregister(t.Context(), "p1")
			require.NoError(t, err)
			require.Zero(t, held)
			keys, err := f.redis.Keys(t.Context(), f.ns+":*").Result()
			require.NoError(t, err)
			require.ElementsMatch(t, []string{f.key("queues"), f.key("stat:processed"), f.key("resqued:meta"), f.key("resqued:fence")}, keys)
		})
	})
}

func TestGrace(t *testing.T) {
	t.Parallel()
	// Leases of a second, on real Redis: its clock cannot be moved.
	server := redistest.Shared(t)
	short := func(o *store.Options) {
		o.Lease, o.LockTTL, o.BeatEvery = 1*time.Second, time.Second, 300*time.Millisecond
	}
	beat := func(f *fixture, proc string) error {
		_, err := f.Beat(f.t.Context(), store.BeatRequest{Proc: proc})
		return err
	}

	t.Run("a dead process is an orphan once its lease is past, while others beat", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server, short)
		f.register("p2")
		require.Eventually(t, func() bool {
			require.NoError(t, beat(f, "p2"))
			orphans, _, err := f.Orphans(t.Context())
			require.NoError(t, err)
			return len(orphans) == 1 && orphans[0] == "p1"
		}, 30*time.Second, 100*time.Millisecond)
	})

	t.Run("after a silence of everybody nobody is an orphan, and a beat revives", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		past := fmt.Sprint(time.Now().Add(-2 * time.Hour).UnixMilli())
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:meta"), "beat", past).Err())
		require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:procs"), redis.Z{Score: 1000, Member: "p1"}).Err())
		orphans, _, err := f.Orphans(t.Context())
		require.NoError(t, err)
		require.Empty(t, orphans)
		orphans, _, err = f.Orphans(t.Context())
		require.NoError(t, err)
		require.Empty(t, orphans)
		_, err = f.Exchange(t.Context(), store.ExchangeRequest{Proc: "p1"})
		require.ErrorIs(t, err, store.ErrFenced)
		require.NoError(t, beat(f, "p1"))
		f.exchange(store.ExchangeRequest{})
	})
}

func TestPoll(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("names the queues that hold jobs", func(t *testing.T) {
			f := setup(t, server)
			f.push("a", job("A", "[1]"))
			f.push("b", job("A", "[1]"))
			require.NoError(t, f.redis.Del(t.Context(), f.key("queue:b")).Err())
			reply, err := f.Poll(t.Context(), store.PollRequest{All: true})
			require.NoError(t, err)
			require.Equal(t, store.PollReply{Cursor: "0", Reasons: store.Reasons{"a": store.Free}, Known: 2}, reply)
			reply, err = f.Poll(t.Context(), store.PollRequest{Fixed: []string{"a", "b", "c"}})
			require.NoError(t, err)
			require.Equal(t, []string{"a"}, reply.Reasons.With(store.Free))
		})

		t.Run("names those of many queues that hold jobs and are not paused", func(t *testing.T) {
			f := setup(t, server)
			var names []string
			for i := range 100 {
				names = append(names, fmt.Sprintf("q%d", i))
			}
			for _, i := range []int{0, 15, 16, 40, 41, 99} {
				f.push(names[i], job("A", "[1]"))
			}
			require.NoError(t, f.redis.Set(t.Context(), f.key("pause:queue:q40"), "true", 0).Err())
			want := store.Reasons{"q0": store.Free, "q15": store.Free, "q16": store.Free, "q40": store.Paused, "q41": store.Free, "q99": store.Free}
			for range 2 {
				for _, ask := range []store.PollRequest{{Fixed: names}, {All: true}} {
					reply, err := f.Poll(t.Context(), ask)
					require.NoError(t, err)
					require.Equal(t, want, reply.Reasons)
				}
				require.NoError(t, f.redis.Set(t.Context(), f.key("pause:all"), "true", 0).Err())
				for queue := range want {
					want[queue] = store.Paused
				}
			}
		})

		t.Run("walks a large set in parts", func(t *testing.T) {
			f := setup(t, server)
			pipe := f.redis.Pipeline()
			for i := range 5000 {
				pipe.SAdd(t.Context(), f.key("queues"), fmt.Sprintf("q%d", i))
			}
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
			f.push("q4321", job("A", "[1]"))
			var found []string
			cursor, calls := "0", 0
			for calls == 0 || cursor != "0" {
				reply, err := f.Poll(t.Context(), store.PollRequest{All: true, Whole: true, Cursor: cursor})
				require.NoError(t, err)
				found, cursor = append(found, reply.Reasons.With(store.Free)...), reply.Cursor
				calls++
			}
			require.Equal(t, []string{"q4321"}, found)
		})
	})
}

// The name of a queue stays in the set of all queues when its last job is gone, so that looking
// at names of empty queues must cost next to nothing.
func TestPollOfEmptyQueues(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	commands := func() int { return server.Commands(t) }
	look := func() int {
		_, err := f.Poll(t.Context(), store.PollRequest{All: true})
		require.NoError(t, err) // loads the script
		before := commands()
		_, err = f.Poll(t.Context(), store.PollRequest{All: true})
		require.NoError(t, err)
		return commands() - before - 1 // INFO itself
	}
	none := look()
	for _, c := range []struct{ names, more int }{{1, 1}, {15, 1}, {100, 1}, {129, 2}, {1000, 8}} {
		for i := range c.names {
			require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), fmt.Sprintf("q%d", i)).Err())
		}
		require.Equal(t, none+c.more, look(), "%d names", c.names)
	}
}

func TestFullServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	f.push("q", job("A", "[1]"), job("A", "[2]"))
	first := f.reserve(1, "q")
	require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := f.Push(t.Context(), "q", []byte("x"))
	require.ErrorContains(t, err, "OOM")
	// A full server goes on being drained.
	reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(first[0])}, Wants: f.wants(1), Queues: locked("q")})
	require.Len(t, reply.Jobs, 1)
	_, err = f.Beat(t.Context(), store.BeatRequest{Proc: "p1"})
	require.NoError(t, err)
	f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &reply.Jobs[0], Kind: store.Failed, Failure: store.Record([]byte("{}"))}}})
	require.Len(t, f.list("failed"), 1)
	f.register("p2")
}

// Jobs behind those that are known to be locked are taken where they stand: nothing
// is popped before their lock is set.
func TestFullServerBehindLockedJobs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	f.push("q", job("A", "[1]"), job("A", "[1]"))
	require.Len(t, f.reserve(2, "q"), 1)
	f.push("q", job("A", "[2]"))
	require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	jobs := f.reserve(1, "q")
	require.Len(t, jobs, 1)
	require.Equal(t, job("A", "[2]"), string(jobs[0].Payload))
}

// An equal job that a stranger pushed waits, too, whatever the set says. No marker is
// left for the one that was refused.
func TestLonerBesideAStrangersJob(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:q"), job("A", "[1]")).Err())
	reply, err := f.EnqueueLoner(t.Context(), store.LonerRequest{
		Key: "lock:A:1", Queue: "q", Payload: []byte(job("A", "[1]")), Unique: true,
	})
	require.NoError(t, err)
	require.Equal(t, store.LonerDuplicate, reply.Status)
	require.False(t, f.exists("loner:lock:A:1"))
	require.Len(t, f.list("queue:q"), 1)
}

// The state of a queue counts locked jobs from its tail; a duplicate that a repair drops among
// them shifts those behind it.
func TestRepairForgetsWhichJobsAreLocked(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	f.push("other", job("A", "[1]"))
	require.Len(t, f.reserve(1, "other"), 1)
	queues := []store.Queue{{Name: "q", Locked: true, Unique: true}}
	// As long as each other, so that nothing tells that they do not match.
	require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:q"), job("A", "[1]"), job("A", "[1]")).Err())
	require.NoError(t, f.redis.SAdd(t.Context(), f.key("queue:q:uniqueue"), "x", "y").Err())
	require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:q:start_at"), 1, 2).Err())
	require.Equal(t, 2, f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: queues}).Bounced)

	require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:q"), job("A", "[2]"), job("A", "[3]")).Err())
	_, err := f.RepairUneven(t.Context(), "q")
	require.NoError(t, err)
	reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: queues})
	require.Len(t, reply.Jobs, 1)
	require.Equal(t, job("A", "[2]"), string(reply.Jobs[0].Payload))
}

func TestWaitReady(t *testing.T) {
	t.Parallel()
	t.Run("waits for a server that is away, and says so", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: "x"})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
		server.Kill()
		told := make(chan error, 100)
		result := make(chan error, 1)
		go func() {
			result <- s.WaitReady(t.Context(), func(err error, _ time.Duration) { told <- err })
		}()
		require.Error(t, <-told)
		server.Restart()
		require.NoError(t, <-result)
	})

	t.Run("refuses a server that may evict jobs", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}})
		s, err := store.Open(store.Options{URL: server.URL(), Namespace: "x"})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
		require.ErrorContains(t, s.WaitReady(t.Context(), nil), "noeviction")
	})

	t.Run("ends with its context", func(t *testing.T) {
		t.Parallel()
		s, err := store.Open(store.Options{URL: "redis://127.0.0.1:1", Namespace: "x"})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, s.WaitReady(ctx, func(error, time.Duration) { cancel() }), context.Canceled)
	})
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://x":                        "is not known",
		"redis-cluster://h:1":             "hash-tagged",
		"redis-sentinel://h:1":            "MASTER-NAME",
		"redis-sentinel://h:1/m/x":        `database "x"`,
		"redis://:secret@h:port/0":        "redis_url",
		"redis://:secret@h:6379/notadb":   "redis_url",
		"redis://:secret@h:6379/0?what=1": "redis_url",
	} {
		_, err := store.Open(store.Options{URL: url, Namespace: "resque"})
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestLargePayloadsComeInParts(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	for i := range 10 {
		f.push("q", job("A", fmt.Sprintf("[%d,%q]", i, strings.Repeat("x", 1<<20))))
	}
	reply := f.exchange(store.ExchangeRequest{Wants: f.wants(10), Queues: locked("q")})
	require.Len(t, reply.Jobs, 4)
	require.True(t, reply.More)
	require.Len(t, f.list("queue:q"), 6)
}

func TestLeasesOfTheFutureAreClamped(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	far := float64(time.Now().Add(365 * 24 * time.Hour).UnixMilli())
	require.NoError(t, f.redis.ZAdd(t.Context(), f.key("resqued:procs"), redis.Z{Score: far, Member: "p1"}).Err())
	_, _, err := f.Orphans(t.Context())
	require.NoError(t, err)
	require.Less(t, f.redis.ZScore(t.Context(), f.key("resqued:procs"), "p1").Val(), far-1e9)
}
