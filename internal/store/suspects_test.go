package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// dies ends p1 with the jobs that it holds, and lets it come back.
func (f *fixture) dies(action store.Action, jobs ...store.Reserved) {
	f.t.Helper()
	_, _, err := f.Fence(f.t.Context(), "p1", true)
	require.NoError(f.t, err)
	var verdicts []store.Verdict
	for _, j := range jobs {
		verdicts = append(verdicts, store.Verdict{Token: j.Token, Action: action})
	}
	require.NoError(f.t, f.Recover(f.t.Context(), "p1", verdicts))
	f.register("p1")
}

// want asks for n jobs.
func (f *fixture) want(n int, what store.Suspects, queues ...store.Queue) store.ExchangeReply {
	f.t.Helper()
	return f.exchange(store.ExchangeRequest{Master: "m", Wants: f.wants(n), Queues: queues, Suspects: what})
}

// suspects is what Poll tells of them.
func (f *fixture) suspects() map[string]int {
	f.t.Helper()
	reply, err := f.Poll(f.t.Context(), store.PollRequest{All: true})
	require.NoError(f.t, err)
	return reply.Suspects
}

func payloads(jobs []store.Reserved) []string {
	var out []string
	for _, j := range jobs {
		out = append(out, string(j.Payload))
	}
	return out
}

func TestSuspects(t *testing.T) {
	t.Parallel()
	a, b, c := job("A", "[1]"), job("B", "[2]"), job("C", "[3]")
	plain, unique := store.Queue{Name: "q"}, store.Queue{Name: "q", Unique: true}

	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("a suspect of a paused queue waits, too", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			f.push("q", a, b)
			f.dies(store.Suspect, f.reserve(2, "q")...)
			require.Empty(t, f.want(2, store.SetApart, plain).Jobs)
			_, _, err := f.Pause(t.Context(), "q", store.PauseOptions{})
			require.NoError(t, err)
			require.Empty(t, f.want(1, store.OnlySuspects, plain).Jobs)
			_, err = f.Resume(t.Context(), "q")
			require.NoError(t, err)
			require.Len(t, f.want(1, store.OnlySuspects, plain).Jobs, 1)
		})
		t.Run("a suspect that cannot be set apart stays where it is", func(t *testing.T) {
			t.Parallel()
			for _, broken := range []string{"resqued:suspects", "resqued:suspects:q"} {
				f := setup(t, server)
				f.push("q", a, b)
				f.dies(store.Suspect, f.reserve(2, "q")...)
				f.put(broken, "text")
				reply := f.want(4, store.SetApart, locked("q")...)
				require.Equal(t, []string{"q"}, reply.WrongType)
				require.ElementsMatch(t, []string{a, b}, f.list("queue:q"))
				f.redis.Del(t.Context(), f.key(broken))
				require.Equal(t, 2, f.want(4, store.SetApart, locked("q")...).Suspects)
			}
		})

		t.Run("jobs that died together are set apart, and others are not held up", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			f.push("q", a, b)
			f.dies(store.Suspect, f.reserve(2, "q")...)
			f.push("q", c)
			reply := f.want(4, store.SetApart, locked("q")...)
			require.Equal(t, []string{c}, payloads(reply.Jobs))
			require.Equal(t, 2, reply.Suspects)
			require.Empty(t, f.list("queue:q"))
			require.Equal(t, map[string]int{"q": 2}, f.suspects())

			reply = f.want(1, store.OnlySuspects, locked("q")...)
			require.Equal(t, []string{a}, payloads(reply.Jobs))
			require.Equal(t, 1, reply.Suspects)
			require.Equal(t, 1, reply.Jobs[0].Deaths)
			require.Equal(t, 1, reply.Jobs[0].Blame)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(reply.Jobs[0])}})
			reply = f.want(1, store.OnlySuspects, locked("q")...)
			require.Equal(t, []string{b}, payloads(reply.Jobs))
			require.Zero(t, reply.Suspects)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(reply.Jobs[0])}})
			for _, key := range []string{"resqued:suspects", "resqued:suspects:q", "resqued:deaths"} {
				require.False(t, f.exists(key), key)
			}
		})

		t.Run("who runs nothing else takes suspects like other jobs", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			f.push("q", a, b)
			f.dies(store.Suspect, f.reserve(1, "q")...)
			require.Equal(t, []string{a}, payloads(f.want(1, store.TakeSuspects, plain).Jobs))
			require.Empty(t, f.suspects())
		})

		t.Run("a death that is nobody's fault makes no suspects", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			f.push("q", a)
			f.dies(store.Requeue, f.reserve(1, "q")...)
			jobs := f.want(2, store.SetApart, plain).Jobs
			require.Equal(t, 1, jobs[0].Deaths)
			require.Zero(t, jobs[0].Blame)

			// Nor does it clear one.
			f.dies(store.Suspect, jobs...)
			f.want(1, store.SetApart, plain)
			jobs = f.want(1, store.OnlySuspects, plain).Jobs
			f.dies(store.Requeue, jobs...)
			f.want(1, store.SetApart, plain)
			jobs = f.want(1, store.OnlySuspects, plain).Jobs
			require.Equal(t, 3, jobs[0].Deaths)
			require.Equal(t, 1, jobs[0].Blame)
		})

		t.Run("suspects take locks and count against caps, and locked ones make room", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			q := store.Queue{Name: "q", Locked: true, Cap: 1}
			f.push("q", a, b)
			f.dies(store.Suspect, f.reserve(2, "q")...)
			f.want(1, store.SetApart, q)
			f.push("q", c)
			require.NoError(t, f.redis.Set(t.Context(), f.key(`locket:job_locks:A[1]`), "", time.Minute).Err())
			reply := f.want(1, store.OnlySuspects, q)
			require.Equal(t, []string{b}, payloads(reply.Jobs))
			require.Equal(t, f.key(`locket:job_locks:B[2]`), reply.Jobs[0].LockKey)
			require.Equal(t, 1, reply.Suspects)
			require.Empty(t, f.want(1, store.SetApart, q).Jobs, "the cap is used up")
			f.exchange(store.ExchangeRequest{Master: "m", Completions: []store.Completion{done(reply.Jobs[0])}})
			reply = f.want(1, store.OnlySuspects, q)
			require.Empty(t, reply.Jobs)
			require.Equal(t, 1, reply.Suspects, "its lock is held still")
		})

		t.Run("locks of suspects may be named in Go", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			q := store.Queue{Name: "q", Locked: true, Named: true}
			f.push("q", a, b)
			f.dies(store.Suspect, f.reserve(2, "q")...)
			require.Empty(t, f.want(1, store.SetApart, q).Unnamed, "who sets them apart needs no names")
			reply := f.want(1, store.OnlySuspects, q)
			require.Empty(t, reply.Jobs)
			require.Len(t, reply.Unnamed, 2)
			for i := range reply.Unnamed {
				reply.Unnamed[i].Name = "x"
			}
			reply = f.exchange(store.ExchangeRequest{
				Wants: f.wants(2), Queues: []store.Queue{q}, Suspects: store.OnlySuspects, Names: reply.Unnamed,
			})
			require.Equal(t, []string{a}, payloads(reply.Jobs))
			require.Equal(t, f.key("locket:job_locks:x"), reply.Jobs[0].LockKey)
		})

		t.Run("in a unique queue they count as taken, and keep their times", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			_, err := f.PushUnique(t.Context(), "q", false, []byte(a), []byte(b))
			require.NoError(t, err)
			jobs := f.want(2, store.SetApart, unique).Jobs
			f.dies(store.Suspect, jobs...)
			f.want(1, store.SetApart, unique)
			require.False(t, f.exists("queue:q:uniqueue"))
			require.False(t, f.exists("queue:q:start_at"))
			reply, err := f.PushUnique(t.Context(), "q", false, []byte(a))
			require.NoError(t, err)
			require.Equal(t, []bool{true}, reply.Pushed)

			// The one that comes back is dropped beside that.
			alone := f.want(1, store.OnlySuspects, unique).Jobs
			require.Equal(t, []string{a}, payloads(alone))
			require.True(t, alone[0].Unique)
			require.Equal(t, jobs[0].EnqueuedAt, alone[0].EnqueuedAt)
			f.dies(store.Suspect, alone...)
			require.Equal(t, []string{a}, f.list("queue:q"))
		})

		t.Run("one that went back to its queue after a run is not a suspect, one that did not run is", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			f.push("q", a)
			f.dies(store.Suspect, f.reserve(1, "q")...)
			jobs := f.want(1, store.TakeSuspects, plain).Jobs
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &jobs[0], Kind: store.Requeued}}})
			require.Empty(t, f.want(1, store.SetApart, plain).Jobs)
			jobs = f.want(1, store.OnlySuspects, plain).Jobs
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &jobs[0], Kind: store.Requeued, Survived: true}}})
			require.Len(t, f.want(1, store.SetApart, plain).Jobs, 1)
		})

		t.Run("a request that is repeated gets back the suspect that it has", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			f.push("q", a, b)
			f.dies(store.Suspect, f.reserve(2, "q")...)
			f.want(1, store.SetApart, plain)
			req := store.ExchangeRequest{Wants: f.wants(1), Queues: []store.Queue{plain}, Suspects: store.OnlySuspects, Sending: 1}
			require.Equal(t, []string{a}, payloads(f.exchange(req).Jobs))
			req.Repeat, req.Sending = true, 2
			require.Equal(t, []string{a}, payloads(f.exchange(req).Jobs))
			require.Equal(t, map[string]int{"q": 1}, f.suspects())
		})

		t.Run("they are removed with their queue, and keep a loner's marker", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			loner := store.LonerRequest{Queue: "q", Payload: []byte(a), Key: "lock:A"}
			reply, err := f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			require.Equal(t, store.LonerPushed, reply.Status)
			f.dies(store.Suspect, f.reserve(1, "q")...)
			f.push("q", b)
			require.Len(t, f.want(1, store.SetApart, plain).Jobs, 1)
			reply, err = f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			require.Equal(t, store.LonerDuplicate, reply.Status)
			f.push("q", c)
			removed, err := f.RemoveQueue(t.Context(), "q", false)
			require.NoError(t, err)
			require.EqualValues(t, 2, removed)
			require.False(t, f.exists("resqued:suspects"))
			require.False(t, f.exists("resqued:suspects:q"))
		})
	})
}

func TestManySuspects(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		var jobs []store.Reserved
		for i := range 200 {
			f.push("q", job("A", "["+string(rune('a'+i%26))+"]")+string(rune('0'+i/26)))
		}
		for len(jobs) < 200 {
			jobs = append(jobs, f.want(100, store.SetApart, store.Queue{Name: "q"}).Jobs...)
		}
		f.dies(store.Suspect, jobs...)
		f.push("q", "last")
		var reply store.ExchangeReply
		for range 4 {
			reply = f.want(1, store.SetApart, store.Queue{Name: "q"})
			if !reply.More {
				break
			}
			require.Empty(t, reply.Jobs)
		}
		require.Equal(t, []string{"last"}, payloads(reply.Jobs))
		require.Equal(t, map[string]int{"q": 200}, f.suspects())
		f.dies(store.Requeue, reply.Jobs...)
		require.Equal(t, payloads(jobs[:3]), []string{
			payloads(f.want(1, store.OnlySuspects, store.Queue{Name: "q"}).Jobs)[0],
			payloads(f.want(1, store.OnlySuspects, store.Queue{Name: "q"}).Jobs)[0],
			payloads(f.want(1, store.OnlySuspects, store.Queue{Name: "q"}).Jobs)[0],
		})
	})
}

// A suspect runs although others wait in a line for its lock, and more come all the time.
func TestSuspectBehindALine(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		mates := lockmates("A", 40)
		f.push("q", mates[0])
		f.dies(store.Suspect, f.turn(1, nil, "q")...)
		f.push("q", mates[1:4]...)
		held := f.turn(2, nil, "q")
		require.Len(t, held, 1, "the suspect stands apart")
		var apart []store.Reserved
		for i := 4; i < len(mates) && len(apart) == 0; i++ {
			f.push("q", mates[i])
			apart = f.want(1, store.OnlySuspects, lined("q")...).Jobs
			if len(apart) == 0 {
				held = f.turn(2, held, "q")
			}
		}
		require.Equal(t, mates[:1], payloads(apart))
		require.Empty(t, held, "nothing runs beside it")
		var got []string
		for held = f.turn(2, apart, "q"); len(held) > 0; held = f.turn(2, held, "q") {
			got = append(got, payloads(held)...)
		}
		require.IsIncreasing(t, got)
		f.noLines("q")
		require.Empty(t, f.suspects())
	})
}

// A suspect runs although there is a backlog of jobs with its lock and no line: a process of one thread
// finds the lock free each time, because the call that ends a job takes the next one.
func TestSuspectBehindABacklog(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		fair := lined("q")
		fair[0].Fair = store.NewFair(1, nil, 1)
		for name, c := range map[string]struct {
			backlog string
			queues  []store.Queue
			spoils  bool // another queue keeps calls from the fast path
		}{
			"of its queue":                        {"q", lined("q"), false},
			"of another queue":                    {"r", lined("q", "r"), false},
			"of its queue, on the slow path":      {"q", lined("q"), true},
			"of a queue whose tenants take turns": {"q", fair, false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := setup(t, server)
				mates := make([]string, 12)
				for i := range mates {
					mates[i] = fmt.Sprintf(`{"class":"A","args":[1,"t"],"n":%02d}`, i)
				}
				if c.spoils {
					f.put("pause:queue:"+c.backlog+"x", "true")
					c.queues = append(c.queues, lined(c.backlog+"x")...)
				}
				turn := func(ended []store.Reserved) []store.Reserved {
					req := store.ExchangeRequest{Master: "m", Wants: f.wants(1), Queues: c.queues}
					for _, j := range ended {
						req.Completions = append(req.Completions, done(j))
					}
					return f.exchange(req).Jobs
				}
				f.push("q", mates[0])
				f.dies(store.Suspect, turn(nil)...)
				require.Empty(t, turn(nil))
				f.push(c.backlog, mates[1:]...)
				held := turn(nil)
				require.Equal(t, mates[1:2], payloads(held))
				var apart []store.Reserved
				for range mates[2:] {
					if apart = f.want(1, store.OnlySuspects, c.queues...).Jobs; len(apart) > 0 {
						break
					}
					held = turn(held)
				}
				require.Equal(t, mates[:1], payloads(apart), "it runs while others wait")
				require.Empty(t, held, "nothing runs beside it")
				var got []string
				for held = turn(apart); len(held) > 0; held = turn(held) {
					got = append(got, payloads(held)...)
				}
				require.Equal(t, mates[2:], got)
				f.noLines(c.backlog)
				require.Empty(t, f.suspects())
			})
		}
	})
}

// TestSuspectsOfALine: of equal jobs in a line no more than one is set apart. When it has ended well the others run
// beside other jobs.
func TestSuspectsOfALine(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for name, queues := range map[string][]store.Queue{"lines": lined("q"), "turns": fair(byArg, "q")} {
			for _, filled := range []bool{true, false} {
				f := setup(t, server)
				equal := make([]string, 40)
				for i := range equal {
					equal[i] = job("A", `["a"]`)
				}
				f.push("q", equal...)
				held := f.want(1, store.SetApart, queues...).Jobs
				if filled { // the others are in the line when the first one dies
					f.want(1, store.SetApart, queues...)
				}
				f.dies(store.Suspect, held...)
				for range 5 {
					require.Empty(t, f.want(4, store.SetApart, queues...).Jobs, name)
					require.Equal(t, map[string]int{"q": 1}, f.suspects(), name)
				}
				held = f.want(1, store.OnlySuspects, queues...).Jobs
				require.Len(t, held, 1)
				require.Empty(t, f.want(4, store.SetApart, queues...).Jobs, name)
				require.Empty(t, f.suspects(), name)
				f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(held[0])}})
				ran := 0
				for held = f.fairly(4, nil, queues...); len(held) > 0; held = f.fairly(4, held, queues...) {
					ran += len(held)
				}
				require.Equal(t, 39, ran, name)
				f.noLines("q")
			}
		}
	})
}
