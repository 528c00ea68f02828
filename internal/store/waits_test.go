package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// passes repeats a request for n jobs until nothing is left to look at.
func (f *fixture) passes(n int, queues ...string) (jobs []store.Reserved, calls int) {
	f.t.Helper()
	for calls = 1; ; calls++ {
		reply := f.exchange(store.ExchangeRequest{Wants: f.wants(n - len(jobs)), Queues: locked(queues...)})
		jobs = append(jobs, reply.Jobs...)
		if len(jobs) == n || !reply.More {
			return jobs, calls
		}
		require.Less(f.t, calls, 1000)
	}
}

func (f *fixture) poll(queues ...string) store.PollReply {
	f.t.Helper()
	reply, err := f.Poll(f.t.Context(), store.PollRequest{Fixed: queues})
	require.NoError(f.t, err)
	return reply
}

func TestWaitingQueues(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("what is known of a queue goes with its jobs, though a part cannot be read", func(t *testing.T) {
			for _, others := range []int{0, 1} {
				f := setup(t, server)
				f.push("q", job("A", "[1]"), job("A", "[1]"))
				holder := f.reserve(1, "q")
				require.Empty(t, f.reserve(1, "q"))
				require.True(t, f.exists("resqued:seen:q"))
				f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(holder[0])}})
				require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:open:q")).Err())
				require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:open:q"), "no set", 0).Err())
				for range others {
					f.push("q", job("A", "[2]"))
				}
				require.Len(t, f.reserve(1, "q"), 1)
				require.False(t, f.exists("resqued:seen:q"), "%d others", others)
				require.False(t, f.exists("locket:queue_lock_counters"), "%d others", others)
			}
		})

		// full is a queue of 300 jobs that all wait for the one that runs.
		full := func(t *testing.T) (*fixture, store.Reserved) {
			t.Helper()
			f := setup(t, server)
			for range 301 {
				f.push("q", job("A", "[1]"))
			}
			holder := f.reserve(1, "q")
			jobs, calls := f.passes(2, "q")
			require.Empty(t, jobs)
			require.Equal(t, 5, calls, "64 looks each")
			return f, holder[0]
		}
		end := func(f *fixture, j store.Reserved) {
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(j)}})
		}

		t.Run("a queue of locked jobs is looked through once", func(t *testing.T) {
			f, _ := full(t)
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(2), Queues: locked("q")})
			require.Zero(t, reply.Bounced)
			require.False(t, reply.More)
			require.Equal(t, store.Locked, f.poll("q").Reasons["q"])
			require.Equal(t, store.Locked, f.poll("q").Reasons["q"])
			require.Equal(t, "300", f.redis.HGet(t.Context(), f.key("locket:queue_lock_counters"), "q").Val())
		})

		t.Run("what is pushed meanwhile is looked at where it stands", func(t *testing.T) {
			f, _ := full(t)
			f.push("q", job("A", "[1]"), job("B", "[1]"), job("A", "[1]"))
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(2), Queues: locked("q")})
			require.Len(t, reply.Jobs, 1)
			require.Equal(t, job("B", "[1]"), string(reply.Jobs[0].Payload))
			require.Zero(t, reply.Bounced)
			require.Len(t, f.list("queue:q"), 302)
			require.Equal(t, store.Locked, f.poll("q").Reasons["q"])
		})

		t.Run("what is pushed while it is being looked through is not overlooked", func(t *testing.T) {
			f := setup(t, server)
			for range 301 {
				f.push("q", job("A", "[1]"))
			}
			require.Len(t, f.reserve(1, "q"), 1)
			for i := 0; ; i++ {
				f.push("q", job("A", "[1]")) // all the time
				reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q")})
				require.Empty(t, reply.Jobs)
				if !reply.More {
					break
				}
				require.Less(t, i, 10, "the newcomers must not make it begin again and again")
			}
			require.Equal(t, store.Locked, f.poll("q").Reasons["q"])
			f.push("q", job("B", "[1]"))
			jobs, calls := f.passes(1, "q")
			require.Len(t, jobs, 1)
			require.Equal(t, 1, calls)
		})

		t.Run("a release makes it look again, wherever it happens", func(t *testing.T) {
			f, holder := full(t)
			f.register("p2")
			f.push("other", job("A", "[2]"))
			other := f.exchange(store.ExchangeRequest{Proc: "p2", Wants: f.wants(1), Queues: locked("other")}).Jobs
			require.Len(t, other, 1)
			f.exchange(store.ExchangeRequest{Proc: "p2", Completions: []store.Completion{done(other[0])}})
			require.Equal(t, store.Locked, f.poll("q").Reasons["q"], "nobody in q waits for that one")
			end(f, holder)
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			jobs := f.exchange(store.ExchangeRequest{Proc: "p2", Wants: f.wants(2), Queues: locked("q")}).Jobs
			require.Len(t, jobs, 1)
		})

		t.Run("a lock that a person removed, or that expired, is noticed by the poll", func(t *testing.T) {
			f, holder := full(t)
			require.NoError(t, f.redis.Del(t.Context(), holder.LockKey).Err())
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			require.Len(t, f.reserve(1, "q"), 1)
		})

		t.Run("so is one whose holder is gone", func(t *testing.T) {
			f, holder := full(t)
			require.NoError(t, f.redis.HDel(t.Context(), f.key("resqued:inflight:p1"), holder.Token).Err())
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			require.Len(t, f.reserve(1, "q"), 1)
		})

		t.Run("what went unnoticed is found after half a minute", func(t *testing.T) {
			f, _ := full(t)
			// A foreign worker takes a job out of the head while another one pushes.
			require.NoError(t, f.redis.LPop(t.Context(), f.key("queue:q")).Err())
			f.push("q", job("B", "[1]"))
			require.Equal(t, store.Locked, f.poll("q").Reasons["q"])
			old := fmt.Sprintf("300 %d 300 1", time.Now().Add(-31*time.Second).UnixMilli())
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:seen:q"), old, time.Minute).Err())
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			jobs, _ := f.passes(1, "q")
			require.Len(t, jobs, 1)
			require.Equal(t, job("B", "[1]"), string(jobs[0].Payload))
		})

		t.Run("what a stranger hides is found after a second", func(t *testing.T) {
			f, _ := full(t)
			f.push("q", job("B", "[1]"))
			// The gem puts the head back, behind the unseen job.
			head := f.redis.LPop(t.Context(), f.key("queue:q")).Val()
			require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:q"), head).Err())
			require.NoError(t, f.redis.HIncrBy(t.Context(), f.key("locket:queue_lock_counters"), "q", 1).Err())
			note := f.redis.Get(t.Context(), f.key("resqued:seen:q")).Val()
			var mark, since, count, known int64
			_, err := fmt.Sscan(note, &mark, &since, &count, &known)
			require.NoError(t, err)
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:seen:q"), fmt.Sprint(mark, since-1100, count, known), time.Minute).Err())
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			jobs, _ := f.passes(1, "q")
			require.Len(t, jobs, 1)
			require.Equal(t, job("B", "[1]"), string(jobs[0].Payload))
		})

		t.Run("a lock that goes from job to job lets the others alone", func(t *testing.T) {
			f := setup(t, server)
			for i := range 400 {
				f.push("q", job("A", fmt.Sprintf("[%d]", i%20)))
			}
			held, _ := f.passes(20, "q")
			require.Len(t, held, 20)
			jobs, _ := f.passes(1, "q")
			require.Empty(t, jobs)
			require.Equal(t, store.Locked, f.poll("q").Reasons["q"])
			bounced := 0
			for range 100 {
				reply := f.exchange(store.ExchangeRequest{
					Completions: []store.Completion{done(held[0])}, Wants: f.wants(5), Queues: locked("q"),
				})
				require.Len(t, reply.Jobs, 1)
				bounced += reply.Bounced
				held = append(held[1:], reply.Jobs...)
				require.Equal(t, store.Locked, f.poll("q").Reasons["q"])
			}
			require.Less(t, bounced, 100*25, "not the whole queue for each of them")
		})

		t.Run("a newcomer that is passed by counts as free as long as its lock was released", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("B", "[1]"))
			held := f.reserve(2, "q")
			f.push("q", job("A", "[1]"), job("B", "[1]"))
			require.Empty(t, f.reserve(1, "q"))
			end(f, held[1])
			next := f.reserve(1, "q")
			require.Len(t, next, 1)
			f.push("q", job("C", "[1]"), job("B", "[1]"))
			end(f, held[0])
			end(f, next[0])
			f.push("other", job("A", "[1]"))
			require.Len(t, f.reserve(1, "other"), 1)
			// A goes to the tail, behind an unseen B.
			require.Equal(t, job("C", "[1]"), string(f.reserve(1, "q")[0].Payload))
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			require.Equal(t, job("B", "[1]"), string(f.reserve(1, "q")[0].Payload))
		})

		t.Run("a counter of the gem alone does not hide jobs", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"))
			require.NoError(t, f.redis.HSet(t.Context(), f.key("locket:queue_lock_counters"), "q", 7).Err())
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			require.Len(t, f.reserve(1, "q"), 1)
		})

		t.Run("recovered jobs at the head are seen", func(t *testing.T) {
			f := setup(t, server)
			f.register("p2")
			f.push("q", job("B", "[1]"), job("A", "[1]"), job("A", "[1]"))
			require.Len(t, f.exchange(store.ExchangeRequest{Proc: "p2", Wants: f.wants(1), Queues: locked("q")}).Jobs, 1)
			require.Len(t, f.reserve(1, "q"), 1)
			require.Empty(t, f.reserve(1, "q"))
			held, _, err := f.Fence(t.Context(), "p2", true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(t.Context(), "p2", []store.Verdict{{Token: held[0].Token, Action: store.Requeue}}))
			require.Equal(t, store.Free, f.poll("q").Reasons["q"])
			require.Len(t, f.reserve(1, "q"), 1)
		})

		t.Run("nothing is left when the jobs are done", func(t *testing.T) {
			f, holder := full(t)
			end(f, holder)
			for range 300 {
				jobs, _ := f.passes(1, "q")
				require.Len(t, jobs, 1)
				require.Empty(t, f.reserve(1, "q"))
				end(f, jobs[0])
			}
			for _, key := range []string{"locket:queue_lock_counters", "resqued:seen:q", "resqued:blocked:q"} {
				require.False(t, f.exists(key), key)
			}
		})

		t.Run("nothing is left of a queue that was removed", func(t *testing.T) {
			f, _ := full(t)
			require.NoError(t, f.redis.Del(t.Context(), f.key("queue:q")).Err())
			_, _, err := f.Orphans(t.Context())
			require.NoError(t, err)
			for _, key := range []string{"locket:queue_lock_counters", "resqued:seen:q", "resqued:blocked:q"} {
				require.False(t, f.exists(key), key)
			}
		})
	})
}

func TestNamedLocks(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		ask := func(f *fixture, names []store.LockName, n int) store.ExchangeReply {
			return f.exchange(store.ExchangeRequest{
				Wants: f.wants(n), Names: names,
				Queues: []store.Queue{{Name: "q", Locked: true, Named: true}, {Name: "low", Locked: true}},
			})
		}
		named := func(name string, unnamed []store.LockName) []store.LockName {
			for i := range unnamed {
				unnamed[i].Name = name
			}
			return unnamed
		}

		t.Run("nothing is popped before its lock is named", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("B", "[1]"))
			f.push("low", job("C", "[1]"))
			reply := ask(f, nil, 2)
			require.Empty(t, reply.Jobs, "the queue that asks comes first")
			require.Len(t, reply.Unnamed, 2)
			require.Equal(t, store.LockName{Queue: "q", Payload: []byte(job("A", "[1]"))}, reply.Unnamed[0])
			reply = ask(f, named("same", reply.Unnamed), 2)
			require.Len(t, reply.Jobs, 2)
			require.Equal(t, f.key("locket:job_locks:same"), reply.Jobs[0].LockKey)
			require.Equal(t, "low", reply.Jobs[1].Queue, "the second one of q is locked")
			require.Equal(t, []string{job("B", "[1]")}, f.list("queue:q"))
		})

		t.Run("a queue whose jobs change under the eyes does not hold up the others", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"))
			names := named("x", ask(f, nil, 1).Unnamed)
			f.redis.Del(t.Context(), f.key("queue:q"))
			f.push("q", job("A", "[2]"))
			f.push("low", job("C", "[1]"))
			reply := ask(f, names, 1)
			require.Len(t, reply.Jobs, 1)
			require.Equal(t, "low", reply.Jobs[0].Queue)
			require.Len(t, reply.Unnamed, 1)
		})

		t.Run("single classes may be named, the others not", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("B", "[1]"))
			req := store.ExchangeRequest{Wants: f.wants(2), Queues: locked("q"), NamedClasses: []string{"B"}}
			reply := f.exchange(req)
			require.Len(t, reply.Jobs, 1)
			require.Len(t, reply.Unnamed, 1)
			req.Wants, req.Names = f.wants(1), named("b", reply.Unnamed)
			reply = f.exchange(req)
			require.Len(t, reply.Jobs, 1)
			require.Equal(t, f.key("locket:job_locks:b"), reply.Jobs[0].LockKey)
		})

		t.Run("the names of classes and keys may be written with escapes", func(t *testing.T) {
			for _, payload := range []string{
				`{"class":"App\\Mail","args":[1]}`, `{"args":[1],"class":"App\\Mail"}`, `{"class":"App\u005cMail","args":[1]}`,
				`{"cl\u0061ss":"App\\Mail","args":[1]}`,
			} {
				f := setup(t, server)
				f.push("q", payload)
				req := store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q"), NamedClasses: []string{`App\Mail`}}
				reply := f.exchange(req)
				require.Empty(t, reply.Jobs, payload)
				require.Len(t, reply.Unnamed, 1)
				req.Names = named("mail", reply.Unnamed)
				reply = f.exchange(req)
				require.Len(t, reply.Jobs, 1)
				require.Equal(t, f.key("locket:job_locks:mail"), reply.Jobs[0].LockKey)
			}
		})
	})
}

func TestUniqueQueuesInTheHotPath(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		unique := []store.Queue{{Name: "q", Locked: true, Unique: true}}
		// gem pushes as resque-uniqueue does.
		gem := func(f *fixture, payload string, at int) {
			f.redis.SAdd(t.Context(), f.key("queues"), "q")
			f.redis.SAdd(t.Context(), f.key("queue:q:uniqueue"), payload)
			f.redis.RPush(t.Context(), f.key("queue:q:start_at"), at)
			require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:q"), payload).Err())
		}
		matches := func(f *fixture) {
			f.t.Helper()
			require.ElementsMatch(t, f.list("queue:q"), f.redis.SMembers(t.Context(), f.key("queue:q:uniqueue")).Val())
			require.Len(t, f.list("queue:q:start_at"), len(f.list("queue:q")))
		}
		pop := func(f *fixture, n int) []store.Reserved {
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(n), Queues: unique})
			require.Empty(t, reply.OutOfStep)
			matches(f)
			return reply.Jobs
		}
		settle := func(f *fixture, kind store.Kind, j store.Reserved, delay time.Duration) store.ExchangeReply {
			reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &j, Kind: kind, Delay: delay}}})
			matches(f)
			return reply
		}

		t.Run("a job knows when it was pushed, and keeps that when it is put back untouched", func(t *testing.T) {
			f := setup(t, server)
			gem(f, job("A", "[1]"), 1700000000)
			gem(f, job("A", "[2]"), 1700000001)
			jobs := pop(f, 1)
			require.Equal(t, time.Unix(1700000000, 0), jobs[0].EnqueuedAt)
			settle(f, store.Returned, jobs[0], 0)
			require.Equal(t, []string{"1700000000", "1700000001"}, f.list("queue:q:start_at"))
			require.Equal(t, job("A", "[1]"), f.list("queue:q")[0])
		})

		t.Run("locked jobs keep their times on the way to the tail", func(t *testing.T) {
			f := setup(t, server)
			for i, payload := range []string{`{"class":"A","args":[1],"n":1}`, `{"class":"A","args":[1],"n":2}`, job("B", "[1]"), `{"class":"A","args":[1],"n":3}`} {
				gem(f, payload, 1700000000+i)
			}
			require.Len(t, pop(f, 1), 1)
			jobs := pop(f, 2)
			require.Len(t, jobs, 1)
			require.Equal(t, time.Unix(1700000002, 0), jobs[0].EnqueuedAt)
			require.Equal(t, []string{"1700000001", "1700000003"}, f.list("queue:q:start_at"))
			gem(f, job("B", "[2]"), 1700000009)
			jobs = pop(f, 2)
			require.Len(t, jobs, 1)
			require.Equal(t, time.Unix(1700000009, 0), jobs[0].EnqueuedAt, "taken where it stood")
		})

		t.Run("what comes back while its equal waits is dropped", func(t *testing.T) {
			f := setup(t, server)
			for _, kind := range []store.Kind{store.Requeued, store.Returned} {
				gem(f, job("A", "[1]"), 1700000000)
				jobs := pop(f, 1)
				gem(f, job("A", "[1]"), 1700000005)
				reply := settle(f, kind, jobs[0], 0)
				require.Equal(t, []int{0}, reply.Duplicates)
				require.Equal(t, []bool{true}, reply.Applied)
				settle(f, store.Done, pop(f, 1)[0], 0)
			}
			gem(f, job("A", "[1]"), 1700000000)
			settle(f, store.Requeued, pop(f, 1)[0], time.Millisecond)
			gem(f, job("A", "[1]"), 1700000005)
			require.Eventually(t, func() bool { return f.due("q").Dropped == 1 }, 30*time.Second, 2*time.Millisecond)
			matches(f)
			jobs := pop(f, 1)
			gem(f, job("A", "[1]"), 1700000006)
			held, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.True(t, held[0].Unique)
			require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: jobs[0].Token, Action: store.Requeue}}))
			matches(f)
			require.Len(t, f.list("queue:q"), 1)
		})
	})
}
