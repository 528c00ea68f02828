package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// lined are queues whose locked jobs wait in lines.
func lined(names ...string) []store.Queue {
	queues := locked(names...)
	for i := range queues {
		queues[i].Lined = true
	}
	return queues
}

// lockmates are jobs of one lock.
func lockmates(class string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"class":%q,"args":[1],"n":%d}`, class, i)
	}
	return out
}

// turn ends some jobs and takes up to n from lined queues.
func (f *fixture) turn(n int, ended []store.Reserved, queues ...string) []store.Reserved {
	f.t.Helper()
	req := store.ExchangeRequest{Wants: f.wants(n), Queues: lined(queues...)}
	for _, j := range ended {
		req.Completions = append(req.Completions, done(j))
	}
	return f.exchange(req).Jobs
}

// noLines fails if anything is left of lines.
func (f *fixture) noLines(queue string) {
	f.t.Helper()
	for _, key := range []string{"resqued:lined", "resqued:awaited", "resqued:lines:" + queue, "resqued:ready:" + queue} {
		require.False(f.t, f.exists(key), key)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("jobs of a lock run in the order in which they were pushed", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 200)...)
			f.push("q", job("B", "[1]"))
			var got []string
			for held := f.turn(3, nil, "q"); len(held) > 0; held = f.turn(3, held, "q") {
				got = append(got, payloads(held)...)
			}
			require.Equal(t, lockmates("A", 200), slices.DeleteFunc(slices.Clone(got), func(p string) bool { return p == job("B", "[1]") }))
			require.Len(t, got, 201)
			f.noLines("q")
		})
		t.Run("a job behind many that are locked runs at once", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 100)...)
			f.push("q", job("B", "[1]"))
			var got []string
			for range 3 { // 64 are looked at in a call
				got = append(got, payloads(f.turn(2, nil, "q"))...)
			}
			require.Equal(t, []string{lockmates("A", 1)[0], job("B", "[1]")}, got)
		})
		t.Run("two queues wait for one lock", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 2)...)
			f.push("r", lockmates("A", 2)...)
			var from []string
			for held := f.turn(1, nil, "q", "r"); len(held) > 0; held = f.turn(4, held, "q", "r") {
				require.Len(t, held, 1)
				from = append(from, held[0].Queue)
			}
			slices.Sort(from)
			require.Equal(t, []string{"q", "q", "r", "r"}, from)
			f.noLines("q")
			f.noLines("r")
		})
		t.Run("of a lock that ends without a word a poll takes notice", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 2)...)
			held := f.turn(2, nil, "q")
			require.Len(t, held, 1)
			reply, err := f.Poll(t.Context(), store.PollRequest{All: true})
			require.NoError(t, err)
			require.Equal(t, store.Reasons{"q": store.Lined}, reply.Reasons)
			require.NoError(t, f.redis.Del(t.Context(), held[0].LockKey).Err())
			require.Empty(t, f.turn(1, nil, "q"))
			reply, err = f.Poll(t.Context(), store.PollRequest{Fixed: []string{"q"}})
			require.NoError(t, err)
			require.Equal(t, []string{"q"}, reply.Reasons.With(store.Free))
			require.Len(t, f.turn(1, nil, "q"), 1)
		})
		t.Run("of a lock whose record is gone, too", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 2)...)
			held := f.turn(2, nil, "q")
			require.NoError(t, f.redis.HDel(t.Context(), f.key("resqued:inflight:p1"), held[0].Token).Err())
			reply, err := f.Poll(t.Context(), store.PollRequest{All: true})
			require.NoError(t, err)
			require.Equal(t, []string{"q"}, reply.Reasons.With(store.Free))
			require.Len(t, f.turn(1, nil, "q"), 1)
		})
		t.Run("a job that comes back is the next of its line", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 3)...)
			held := f.turn(2, nil, "q")
			back := done(held[0])
			back.Kind = store.Returned
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{back}})
			held = f.turn(2, nil, "q")
			require.Equal(t, lockmates("A", 1), payloads(held))

			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Requeue}}))
			f.register("p1")
			require.Equal(t, lockmates("A", 1), payloads(f.turn(2, nil, "q")))
		})
		t.Run("a job whose lock has another name by now goes to the head of its queue", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 3)...)
			held := f.turn(2, nil, "q")
			require.False(t, held[0].Lined)
			f.push("q", job("B", "[1]"))
			held = f.turn(1, held, "q")
			require.Equal(t, lockmates("A", 2)[1:], payloads(held))
			require.True(t, held[0].Lined)
			back := done(held[0])
			back.Kind, back.Renamed = store.Returned, true
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{back}})
			require.Equal(t, []string{lockmates("A", 2)[1], job("B", "[1]")}, f.list("queue:q"))
		})
		t.Run("an operator who removes a lock lets the next one run", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 2)...)
			f.turn(2, nil, "q")
			locks, err := f.FindLocks(t.Context(), "A[1]")
			require.NoError(t, err)
			_, _, err = f.RemoveLock(t.Context(), locks[0], true)
			require.NoError(t, err)
			require.Len(t, f.turn(1, nil, "q"), 1)
		})
		t.Run("who does not add to lines serves them", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 3)...)
			held := f.turn(2, nil, "q")
			f.push("q", lockmates("B", 1)...)
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(3), Queues: []store.Queue{{Name: "q"}}, Completions: []store.Completion{done(held[0])}})
			require.ElementsMatch(t, []string{lockmates("A", 2)[1], lockmates("B", 1)[0]}, payloads(reply.Jobs))
			require.Equal(t, "locket:job_locks:A[1]", reply.Jobs[0].LockKey[len(f.ns)+1:])
		})
		t.Run("a queue is emptied with its lines", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 70)...)
			f.push("q", lockmates("B", 3)...)
			f.turn(3, nil, "q")
			f.turn(3, nil, "q")
			n, err := f.RemoveQueue(t.Context(), "q", false)
			require.NoError(t, err)
			require.EqualValues(t, 71, n)
			f.noLines("q")
		})
		t.Run("jobs in lines are dequeued and moved", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 5)...)
			f.turn(3, nil, "q")
			gone, err := f.Dequeue(t.Context(), "q", func(p []byte) bool { return string(p) == lockmates("A", 3)[2] }, nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, gone)
			moved, err := f.MoveJobs(t.Context(), store.MoveRequest{From: "q", To: "r", Pick: func([]byte) (string, bool) { return "", true }})
			require.NoError(t, err)
			require.EqualValues(t, 3, moved.Moved)
			require.Equal(t, slices.Delete(lockmates("A", 5), 2, 3)[1:], f.list("queue:r"))
			f.noLines("q")
		})
		t.Run("a queue with lines is not pruned", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 2)...)
			f.turn(2, nil, "q")
			pruned, err := f.PruneQueue(t.Context(), "q")
			require.NoError(t, err)
			require.False(t, pruned)
		})
		t.Run("what is to be seen", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 4)...)
			held := f.turn(2, nil, "q")
			f.push("q", job("B", "[7]"))
			list, err := f.QueueList(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 4, list[0].Size)
			require.EqualValues(t, 3, list[0].Lined)
			lines, err := f.Lines(t.Context(), "q", 10)
			require.NoError(t, err)
			require.Len(t, lines, 1)
			require.Equal(t, "locket:job_locks:A[1]", lines[0].Lock)
			require.EqualValues(t, 3, lines[0].Jobs)
			require.False(t, lines[0].Ready)
			require.WithinDuration(t, time.Now(), lines[0].Since, time.Minute)
			shown, err := f.Payloads(t.Context(), "q", 0, 3)
			require.NoError(t, err)
			require.Equal(t, []string{job("B", "[7]"), lockmates("A", 3)[1], lockmates("A", 3)[2]}, []string{string(shown[0]), string(shown[1]), string(shown[2])})
			n, err := f.Length(t.Context(), "q")
			require.NoError(t, err)
			require.EqualValues(t, 4, n)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(held[0])}})
			lines, err = f.Lines(t.Context(), "q", 10)
			require.NoError(t, err)
			require.True(t, lines[0].Ready)
		})
		t.Run("a loner that waits in a line counts", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"))
			require.Len(t, f.turn(1, nil, "q"), 1)
			loner := store.LonerRequest{Key: "lock:A", Queue: "q", Payload: []byte(job("A", "[1]"))}
			reply, err := f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			require.Equal(t, store.LonerPushed, reply.Status)
			require.Empty(t, f.turn(1, nil, "q"))
			require.Empty(t, f.list("queue:q"))
			reply, err = f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			require.Equal(t, store.LonerDuplicate, reply.Status)
		})
		t.Run("a pause holds where the counts of lines have gone", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 4)...)
			held := f.turn(2, nil, "q")
			require.Len(t, held, 1)
			require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:lined")).Err())
			f.put("pause:all", "true")
			require.Empty(t, f.turn(2, held, "q"))
			require.False(t, f.exists("locket:job_locks:A[1]"))
		})
		t.Run("a line whose key is something else", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:line:1:q:A[1]"), "x", 0).Err())
			f.push("q", lockmates("A", 3)...)
			f.turn(2, nil, "q")
			require.Len(t, f.list("queue:q"), 2)
		})
	})
}

// TestQueuesOfOneLock: a process that ends a job takes the next one of its line. A queue that other processes work gets the
// lock, too, when it has asked for it.
func TestQueuesOfOneLock(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		const asks, lock = "resqued:asks:A[1]", "locket:job_locks:A[1]"
		turn := func(proc, queue string, ended ...store.Reserved) []store.Reserved {
			req := store.ExchangeRequest{Proc: proc, Queues: lined(queue), Wants: f.wants(1)}
			for _, j := range ended {
				req.Completions = append(req.Completions, done(j))
			}
			return f.exchange(req).Jobs
		}
		aged := func() { // it has asked for a while
			require.NoError(t, f.redis.PExpire(t.Context(), f.key(asks), 38*time.Second).Err())
		}
		procs := map[string]string{"q": "p1", "r": "p2", "s": "p3"}
		for _, queue := range []string{"q", "r", "s"} {
			f.register(procs[queue])
			f.push(queue, lockmates("A", 8)...)
		}
		held := turn("p1", "q")
		require.Empty(t, turn("p1", "q")) // the others wait in lines
		require.Empty(t, turn("p2", "r"))
		require.Empty(t, turn("p3", "s"))
		held = turn("p1", "q", held...)
		require.Equal(t, "q", held[0].Queue)

		// s asks first, but r waits for longer.
		require.Empty(t, turn("p3", "s"))
		require.Equal(t, "s", f.get(asks))
		require.Empty(t, turn("p2", "r"))
		require.Equal(t, "r", f.get(asks))
		held = turn("p1", "q", held...)
		require.Equal(t, "q", held[0].Queue, "it has just asked")
		var from []string
		for range 6 {
			for _, queue := range []string{"s", "r", "q"} {
				if queue != held[0].Queue {
					require.Empty(t, turn(procs[queue], queue))
				}
			}
			aged()
			next := turn(procs[held[0].Queue], held[0].Queue, held...)
			require.Empty(t, next)
			value := f.get(lock)
			require.True(t, strings.HasPrefix(value, "line:"), value)
			for queue, proc := range procs {
				if got := turn(proc, queue); len(got) > 0 {
					held, from = got, append(from, queue)
				}
			}
			require.Equal(t, "line:"+held[0].Queue, value)
		}
		require.Equal(t, []string{"r", "q", "s", "r", "q", "s"}, from)

		// One that asks and does not come keeps the others waiting for a moment.
		require.Empty(t, turn("p1", "q"))
		aged()
		require.Empty(t, turn("p3", "s", held...))
		ttl, err := f.redis.PTTL(t.Context(), f.key(lock)).Result()
		require.NoError(t, err)
		require.LessOrEqual(t, ttl, 5*time.Second)
		require.NoError(t, f.redis.Del(t.Context(), f.key(lock)).Err())
		require.Equal(t, []string{"s"}, f.look(store.PollRequest{Fixed: []string{"s"}}).Reasons.With(store.Free))
		held = turn("p3", "s")
		require.Len(t, held, 1)

		// One whose line is gone does not get it.
		require.Empty(t, turn("p1", "q"))
		aged()
		_, err = f.RemoveQueue(t.Context(), "q", false)
		require.NoError(t, err)
		require.Len(t, turn("p3", "s", held...), 1)
	})
}

// TestOtherWorkers: where workers of other programs are registered jobs wait in their queue.
func TestOtherWorkers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for worker, shared := range map[string]bool{"web:1:q": true, "web:1:a,q,b": true, "web:1:*": true, "web:1:q_*": true, "web:1:p": false, "h~resqued:1.0.0-abc:q:,q": false} {
			f := setup(t, server)
			require.NoError(t, f.redis.Del(t.Context(), f.key("workers")).Err()) // those of the fixture have no name of ours
			require.NoError(t, f.redis.SAdd(t.Context(), f.key("workers"), worker).Err())
			require.NoError(t, f.NoteOtherWorkers(t.Context(), time.Hour))
			f.push("q", lockmates("A", 3)...)
			require.Len(t, f.turn(3, nil, "q"), 1)
			require.Len(t, f.list("queue:q"), map[bool]int{true: 2}[shared], worker)
			// Another one does not begin so soon.
			require.NoError(t, f.redis.Del(t.Context(), f.key("workers")).Err())
			require.NoError(t, f.NoteOtherWorkers(t.Context(), time.Hour))
			require.Equal(t, worker != "h~resqued:1.0.0-abc:q:,q", f.exists("resqued:strangers"))
			require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:strangers:turn")).Err())
			require.NoError(t, f.NoteOtherWorkers(t.Context(), time.Hour))
			require.False(t, f.exists("resqued:strangers"))
		}
	})
}

// TestLinesKeepTheOrder has several processes take jobs of several locks from two queues, end
// them, and give some back: of each queue and lock they begin in the order of their pushes.
func TestLinesKeepTheOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	for _, proc := range []string{"p2", "p3"} {
		f.register(proc)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := 0
		pushed, begun := map[string][]string{}, map[string][]string{}
		held := map[string][]store.Reserved{}
		byGo := rapid.Bool().Draw(t, "locks are named in Go")
		lockOf := func(payload string) string { return payload[10:11] }
		push := func(t *rapid.T) {
			queue := rapid.SampledFrom([]string{"q", "r"}).Draw(t, "queue")
			for range rapid.IntRange(1, 20).Draw(t, "jobs") {
				n++
				payload := fmt.Sprintf(`{"class":"%c","args":[],"n":%d}`, 'A'+rapid.IntRange(0, 3).Draw(t, "lock"), n)
				storetest.Must(t, f.redis.RPush(f.t.Context(), f.key("queue:"+queue), payload).Err())
				pushed[queue+lockOf(payload)] = append(pushed[queue+lockOf(payload)], payload)
			}
		}
		exchange := func(t *rapid.T, proc string, all bool) int {
			req := store.ExchangeRequest{Proc: proc, Queues: lined("q", "r"), Wants: f.wants(rapid.IntRange(0, 6).Draw(t, "wants"))}
			if all {
				req.Wants = f.wants(6)
			}
			for i := range req.Queues {
				req.Queues[i].Named = byGo
			}
			var left []store.Reserved
			for _, j := range held[proc] {
				switch end := rapid.IntRange(0, 3).Draw(t, "end"); {
				case end == 0 && !all:
					left = append(left, j)
				case end == 1 && !all:
					c := done(j)
					c.Kind = store.Returned
					req.Completions = append(req.Completions, c)
					list := begun[j.Queue+lockOf(string(j.Payload))]
					begun[j.Queue+lockOf(string(j.Payload))] = list[:len(list)-1]
				default:
					req.Completions = append(req.Completions, done(j))
				}
			}
			held[proc] = left
			got := 0
			for {
				reply, err := f.Exchange(f.t.Context(), req)
				storetest.Must(t, err)
				for _, j := range reply.Jobs {
					held[proc] = append(held[proc], j)
					begun[j.Queue+lockOf(string(j.Payload))] = append(begun[j.Queue+lockOf(string(j.Payload))], string(j.Payload))
				}
				got += len(reply.Jobs)
				if len(reply.Unnamed) == 0 {
					return got
				}
				req.Completions, req.Wants = nil, req.Wants[len(reply.Jobs):]
				for _, name := range reply.Unnamed {
					name.Name = lockOf(string(name.Payload))
					req.Names = append(req.Names, name)
				}
			}
		}
		check := func(t *rapid.T) {
			for key, list := range begun {
				if !slices.Equal(list, pushed[key][:len(list)]) {
					t.Fatalf("of %s began\n%q, pushed were\n%q", key, list, pushed[key])
				}
			}
		}
		procs := []string{"p1", "p2", "p3"}
		some := func(t *rapid.T) { exchange(t, rapid.SampledFrom(procs).Draw(t, "process"), false) }
		t.Repeat(map[string]func(*rapid.T){"push": push, "exchange": some, "exchange 2": some, "exchange 3": some, "": check})
		for idle := 0; idle < 2*len(procs); idle++ {
			if exchange(t, procs[idle%len(procs)], true) > 0 {
				idle = -1
			}
		}
		check(t)
		for key, list := range pushed {
			if len(begun[key]) != len(list) {
				t.Fatalf("of %s began %d of %d", key, len(begun[key]), len(list))
			}
		}
		for _, queue := range []string{"q", "r"} {
			for _, key := range []string{"queue:" + queue, "resqued:lines:" + queue, "resqued:ready:" + queue, "resqued:lined", "resqued:awaited"} {
				if f.exists(key) {
					t.Fatalf("left: %s", key)
				}
			}
		}
	})
}

// TestLineCost: a job that waits behind a busy lock costs about as many commands as one that
// does not wait, however many wait.
func TestLineCost(t *testing.T) {
	t.Parallel()
	for _, waiting := range []int{500, 5000} {
		server := redistest.Start(t, redistest.Options{})
		f := setup(t, server)
		f.push("q", lockmates("A", waiting)...)
		held := f.turn(8, nil, "q")
		const jobs = 200
		before := server.Commands(t)
		for range jobs {
			held = f.turn(8, held, "q")
			require.Len(t, held, 1)
		}
		each := float64(server.Commands(t)-before) / jobs
		t.Logf("%d wait: %.1f commands a job", waiting, each)
		require.Less(t, each, 30.0)
	}
}
