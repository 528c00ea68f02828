package store_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// look polls, and returns what it has found.
func (f *fixture) look(r store.PollRequest) store.PollReply {
	f.t.Helper()
	reply, err := f.Poll(f.t.Context(), r)
	require.NoError(f.t, err)
	return reply
}

// TestFreeLocksOfLinesAreNoticed: a lock that becomes free without a word to its line, because it
// expired or a Ruby worker released it, is noticed by a poll whatever else the queue has to offer.
func TestFreeLocksOfLinesAreNoticed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("while other jobs wait in the queue", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 2)...)
			held := f.turn(2, nil, "q")
			f.push("q", job("B", "[1]"))
			require.NoError(t, f.redis.Del(t.Context(), held[0].LockKey).Err())
			require.Equal(t, []string{"q"}, f.look(store.PollRequest{All: true}).Reasons.With(store.Free))
			require.Equal(t, []string{lockmates("A", 2)[1], job("B", "[1]")}, payloads(f.turn(3, nil, "q")))
		})
		t.Run("while other lines are ready", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", slices.Concat(lockmates("A", 2), lockmates("B", 2))...)
			held := f.turn(3, nil, "q")
			require.Len(t, held, 2)
			require.NoError(t, f.redis.Del(t.Context(), held[0].LockKey).Err())
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(held[1])}})
			require.Equal(t, []string{"q"}, f.look(store.PollRequest{All: true}).Reasons.With(store.Free))
			// The lock released first has the first turn.
			require.Equal(t, []string{lockmates("B", 2)[1], lockmates("A", 2)[1]}, payloads(f.turn(3, nil, "q")))
			f.noLines("q")
		})
		t.Run("while all jobs in the queue itself are locked", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", slices.Concat(lockmates("A", 2), lockmates("B", 1))...)
			held := f.turn(3, nil, "q")
			require.Len(t, held, 2)
			f.push("q", lockmates("B", 3)...)
			for range 3 { // as with lines: off
				f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: locked("q")})
			}
			reply := f.look(store.PollRequest{All: true})
			require.Equal(t, store.Reasons{"q": store.Locked}, reply.Reasons, "the queue is not empty")
			require.NoError(t, f.redis.Del(t.Context(), held[0].LockKey).Err())
			reply = f.look(store.PollRequest{Fixed: []string{"q"}})
			require.Equal(t, store.Reasons{"q": store.Free}, reply.Reasons)
		})
		t.Run("among very many queues with lines", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", lockmates("A", 2)...)
			held := f.turn(2, nil, "q")
			counts := make([]string, 0, 10000)
			for i := range 5000 {
				counts = append(counts, "other"+strconv.Itoa(i), "1")
			}
			require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:lined"), counts).Err())
			for range 5 {
				require.Equal(t, []string{"q"}, f.look(store.PollRequest{Fixed: []string{"p", "q"}}).Reasons.With(store.Lined))
			}
			require.NoError(t, f.redis.Del(t.Context(), held[0].LockKey).Err())
			require.Equal(t, []string{"q"}, f.look(store.PollRequest{Fixed: []string{"p", "q"}}).Reasons.With(store.Free))
		})
		t.Run("a pass through very many queues looks at lines once", func(t *testing.T) {
			f := setup(t, server)
			names := make([]any, 3000)
			for i := range names {
				names[i] = fmt.Sprintf("other%d", i)
			}
			require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), names...).Err())
			f.push("q", lockmates("A", 2)...)
			f.turn(2, nil, "q")
			f.push("q", lockmates("A", 3)[2])
			var seen []string
			for cursor := ""; ; {
				reply := f.look(store.PollRequest{All: true, Cursor: cursor})
				seen = append(seen, reply.Reasons.With(store.Locked, store.Free)...) // not Lined: the queue is not empty
				if cursor = reply.Cursor; cursor == "" || cursor == "0" {
					break
				}
			}
			require.Contains(t, seen, "q")
			require.LessOrEqual(t, len(seen), 2)
		})
	})
}

// TestNamesOfLines: lines are told apart whatever their locks and queues are called.
func TestNamesOfLines(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		for _, queue := range []string{"q", "", "q:", " ", "1 q", "a\x00b", "q{1}"} {
			names := []string{"A", "A:start_at", "A:uniqueue", "", "\x00", " 1 q\n", "1:q:A", "ü\xff", "\x01two:", "\x02", string(slices.Repeat([]byte("x"), 100000))}
			turns := func(n int, ended []store.Reserved) []store.Reserved {
				req := store.ExchangeRequest{Wants: f.wants(n), Queues: lined(queue)}
				req.Queues[0].Named = true
				for _, j := range ended {
					req.Completions = append(req.Completions, done(j))
				}
				var jobs []store.Reserved
				for {
					reply := f.exchange(req)
					jobs = append(jobs, reply.Jobs...)
					if len(reply.Unnamed) == 0 {
						return jobs
					}
					req.Completions, req.Wants = nil, req.Wants[len(reply.Jobs):]
					for _, u := range reply.Unnamed {
						var i int
						_, err := fmt.Sscanf(string(u.Payload), `{"class":"C","args":[%d`, &i)
						require.NoError(t, err)
						u.Name = names[i]
						req.Names = append(req.Names, u)
					}
				}
			}
			payload := func(i, n int) string { return fmt.Sprintf(`{"class":"C","args":[%d,%d]}`, i, n) }
			for n := range 4 {
				for i := range names {
					f.push(queue, payload(i, n))
				}
			}
			held := turns(50, nil)
			require.Len(t, held, len(names), "%q", queue)
			removed, err := f.Dequeue(t.Context(), queue, func(p []byte) bool { return string(p) == payload(0, 2) }, nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, removed)
			moved, err := f.MoveJobs(t.Context(), store.MoveRequest{From: queue, To: "elsewhere", Pick: func(p []byte) (string, bool) { return "", string(p) == payload(0, 1) }})
			require.NoError(t, err)
			require.EqualValues(t, 1, moved.Moved)
			var rest []string
			for held = turns(50, held); len(held) > 0; held = turns(50, held) {
				rest = append(rest, payloads(held)...)
			}
			require.Len(t, rest, 3*len(names)-2, "%q", queue)
			f.noLines(queue)
		}
	})
}

// TestDeathsOfJobsInLines: that a job has died is known as long as it waits in a line.
func TestDeathsOfJobsInLines(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("q", lockmates("A", 2)...)
		held := f.turn(2, nil, "q")
		_, _, err := f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Requeue}}))
		require.False(t, f.exists("queue:q"))
		for _, member := range f.redis.ZRange(t.Context(), f.key("resqued:died:q"), 0, -1).Val() {
			require.NoError(t, f.redis.ZIncrBy(t.Context(), f.key("resqued:died:q"), -float64((2*time.Hour).Milliseconds()), member).Err())
		}
		_, _, err = f.Orphans(t.Context())
		require.NoError(t, err)
		require.True(t, f.exists("resqued:deaths:q"))
	})
}

// TestKeyInPlaceOfALine: where a line cannot be, jobs of its lock run when that is free, whatever
// other lines there are.
func TestKeyInPlaceOfALine(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:line:1:q:A[1]"), "x", 0).Err())
		f.push("q", lockmates("B", 2)...)
		require.Len(t, f.turn(2, nil, "q"), 1)
		f.push("q", lockmates("A", 1)...)
		require.Equal(t, lockmates("A", 1), payloads(f.turn(1, nil, "q")))
	})
}

// TestLineCostBeyondTheBound: where more wait than lines hold, a job costs about as much as
// without lines: not each one that makes room has the whole queue looked through.
func TestLineCostBeyondTheBound(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	f.push("q", lockmates("A", 500)...)
	held := f.turn(8, nil, "q")
	for len(f.list("queue:q")) > 300 {
		require.Empty(t, f.turn(7, nil, "q"))
	}
	waits := f.redis.HGet(t.Context(), f.key("resqued:lined"), "q").Val()
	require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:lined"), "q", "100000").Err())
	f.push("q", lockmates("A", 10000)[500:]...)
	turn := func(jobs []store.Reserved) []store.Reserved {
		req := store.ExchangeRequest{Queues: lined("q")}
		for _, j := range jobs {
			req.Completions = append(req.Completions, done(j))
		}
		var got []store.Reserved
		for more := true; more; { // as a process does
			req.Wants = f.wants(8)
			reply := f.exchange(req)
			got, more, req.Completions = append(got, reply.Jobs...), reply.More, nil
		}
		return got
	}
	for range 10 {
		held = append(turn(held), turn(nil)...)
	}
	const jobs = 100
	before := server.Commands(t)
	for range jobs {
		held = turn(held)
		require.Len(t, held, 1)
	}
	each := float64(server.Commands(t)-before) / jobs
	t.Logf("%s wait in lines: %.1f commands a job", waits, each)
	require.Less(t, each, 80.0)
	// When half of them are left the others come into lines again.
	require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:lined"), "q", "49999").Err())
	length := len(f.list("queue:q"))
	turn(held)
	require.Less(t, len(f.list("queue:q")), length)
}

// TestBehindASuspectInALine: the job behind a suspect is checked in the same call.
func TestBehindASuspectInALine(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		f.push("q", lockmates("A", 3)...)
		held := f.turn(2, nil, "q")
		_, _, err := f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Suspect}}))
		f.register("p1")
		reply := f.exchange(store.ExchangeRequest{Wants: f.wants(2), Queues: lined("q"), Suspects: store.SetApart})
		require.Equal(t, lockmates("A", 2)[1:], payloads(reply.Jobs))
		require.Equal(t, 1, reply.Suspects)
	})
}
