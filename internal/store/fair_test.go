package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// fair are queues in which tenants take turns. Their jobs take locks.
func fair(f *store.Fair, names ...string) []store.Queue {
	queues := lined(names...)
	for i := range queues {
		queues[i].Fair = f
	}
	return queues
}

// byArg has the first argument be the tenant, all of them with the same weight.
var byArg = store.NewFair(0, nil, 1)

// jobsOf are jobs of a tenant, each with a lock of its own.
func jobsOf(tenant string, from, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"class":"Mail","args":[%q,%d]}`, tenant, from+i)
	}
	return out
}

// tenantOf is the tenant of such a job.
func tenantOf(payload string) string {
	_, rest, _ := strings.Cut(payload, `"args":["`)
	tenant, _, _ := strings.Cut(rest, `"`)
	return tenant
}

func tenantsOf(payloads []string) string {
	var b strings.Builder
	for _, p := range payloads {
		b.WriteString(tenantOf(p))
	}
	return b.String()
}

// fairly ends some jobs and takes up to n from fair queues.
func (f *fixture) fairly(n int, ended []store.Reserved, queues ...store.Queue) []store.Reserved {
	f.t.Helper()
	req := store.ExchangeRequest{Wants: f.wants(n), Queues: queues}
	for _, j := range ended {
		req.Completions = append(req.Completions, done(j))
	}
	return f.exchange(req).Jobs
}

// workAll takes all jobs, n at a time, and returns them in the order in which they began.
func (f *fixture) workAll(n int, queues ...store.Queue) []string {
	f.t.Helper()
	var got []string
	var held []store.Reserved
	for idle := 0; idle < 2; idle++ {
		if held = f.fairly(n, held, queues...); len(held) > 0 {
			idle = -1
		}
		got = append(got, payloads(held)...)
	}
	return got
}

// noTurns fails if anything is left of turns and lines.
func (f *fixture) noTurns(queue string) {
	f.t.Helper()
	f.noLines(queue)
	for _, key := range []string{"resqued:turned", "resqued:turns:" + queue} {
		require.False(f.t, f.exists(key), key)
	}
}

func TestFair(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("tenants take turns, and each has its jobs in their order", func(t *testing.T) {
			for _, wants := range []int{1, 3, 10} {
				f := setup(t, server)
				f.push("q", jobsOf("a", 0, 6)...)
				f.push("q", jobsOf("b", 0, 3)...)
				f.push("q", jobsOf("c", 0, 1)...)
				got := f.workAll(wants, fair(byArg, "q")...)
				require.Equal(t, "abcababaaa", tenantsOf(got), wants)
				for _, tenant := range []string{"a", "b", "c"} {
					require.True(t, slices.IsSorted(slices.DeleteFunc(slices.Clone(got), func(p string) bool { return tenantOf(p) != tenant })))
				}
				f.noTurns("q")
				require.Empty(t, f.list("queue:q"))
			}
		})
		t.Run("a newcomer waits for one job of each other at most", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 300)...)
			f.push("q", jobsOf("b", 0, 300)...)
			held := f.fairly(5, nil, fair(byArg, "q")...)
			require.Equal(t, "ababa", tenantsOf(payloads(held)))
			f.push("q", jobsOf("z", 0, 2)...)
			held = f.fairly(3, held, fair(byArg, "q")...)
			require.Contains(t, tenantsOf(payloads(held)), "z")
			require.LessOrEqual(t, strings.Count(tenantsOf(payloads(held)), "a"), 1)
		})
		t.Run("a tenant that pushes one job at a time gets no more than its turns", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("b", 0, 30)...)
			f.push("q", jobsOf("a", 0, 1)...)
			var got string
			var held []store.Reserved
			for i := range 12 {
				held = f.fairly(1, held, fair(byArg, "q")...)
				if got += tenantsOf(payloads(held)); tenantsOf(payloads(held)) == "a" {
					f.push("q", jobsOf("a", i+1, 1)...)
				}
			}
			require.Equal(t, 6, strings.Count(got, "a"), got)
		})
		t.Run("shares go by weights", func(t *testing.T) {
			f := setup(t, server)
			rule := store.NewFair(0, map[string]int{"big": 4, "b ": 2}, 1)
			f.push("q", jobsOf("big", 0, 200)...)
			f.push("q", jobsOf("b ", 0, 200)...)
			f.push("q", jobsOf("c", 0, 200)...)
			count := map[string]int{}
			var held []store.Reserved
			for range 10 {
				held = f.fairly(7, held, fair(rule, "q")...)
				for _, p := range payloads(held) {
					count[tenantOf(p)]++
				}
			}
			require.Equal(t, map[string]int{"big": 40, "b ": 20, "c": 10}, count)
		})
		t.Run("tenants that Go names", func(t *testing.T) {
			f := setup(t, server)
			queues := fair(store.NewFair(store.ByGo, nil, 1), "q")
			queues[0].Named = true
			f.push("q", jobsOf("a", 0, 4)...)
			f.push("q", jobsOf("b", 0, 2)...)
			var got []string
			req := store.ExchangeRequest{Wants: f.wants(1), Queues: queues}
			for range 40 {
				reply := f.exchange(req)
				got = append(got, payloads(reply.Jobs)...)
				req = store.ExchangeRequest{Wants: f.wants(1), Queues: queues}
				for _, j := range reply.Jobs {
					req.Completions = append(req.Completions, done(j))
				}
				for _, n := range reply.Unnamed {
					n.Name, n.Tenant = string(n.Payload), tenantOf(string(n.Payload))
					req.Names = append(req.Names, n)
				}
			}
			require.Equal(t, "ababaa", tenantsOf(got))
			f.noTurns("q")
		})
		t.Run("jobs that come back are next", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 5)...)
			f.push("q", jobsOf("b", 0, 5)...)
			held := f.fairly(3, nil, fair(byArg, "q")...)
			back := done(held[0])
			back.Kind = store.Returned
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{back}})
			next := f.fairly(2, nil, fair(byArg, "q")...)
			require.Equal(t, held[0].Payload, next[0].Payload)
			require.Equal(t, "b", tenantOf(string(next[1].Payload)))

			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: next[1].Token, Action: store.Requeue}}))
			f.register("p1")
			require.Equal(t, next[1].Payload, f.fairly(1, nil, fair(byArg, "q")...)[0].Payload)
		})
		t.Run("a job whose lock is held goes to the line for it", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", `{"class":"A","args":["a"],"n":1}`, `{"class":"A","args":["a"],"n":2}`, `{"class":"A","args":["a"],"n":3}`)
			f.push("q", jobsOf("b", 0, 3)...)
			held := f.fairly(2, nil, fair(byArg, "q")...)
			require.Equal(t, "ab", tenantsOf(payloads(held)))
			held = append(held, f.fairly(2, nil, fair(byArg, "q")...)...)
			require.Equal(t, "abbb", tenantsOf(payloads(held)))
			lines, err := f.Lines(t.Context(), "q", 10)
			require.NoError(t, err)
			require.Len(t, lines, 1)
			require.Equal(t, []string{`{"class":"A","args":["a"],"n":1}`, `{"class":"A","args":["a"],"n":2}`, `{"class":"A","args":["a"],"n":3}`},
				append(payloads(held[:1]), f.rest(held, fair(byArg, "q")...)...))
			f.noTurns("q")
		})
		t.Run("a job passes no line for its lock, even where that is not told that the lock is free", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", `{"class":"A","args":["a"],"n":1}`, `{"class":"A","args":["a"],"n":2}`)
			held := f.fairly(2, nil, fair(byArg, "q")...)
			require.Len(t, held, 1)
			f.push("q", `{"class":"A","args":["a"],"n":3}`)
			require.NoError(t, f.redis.Del(t.Context(), held[0].LockKey).Err())
			require.Empty(t, f.fairly(2, nil, fair(byArg, "q")...))
			_, err := f.Poll(t.Context(), store.PollRequest{All: true})
			require.NoError(t, err)
			require.Equal(t, []string{`{"class":"A","args":["a"],"n":2}`}, payloads(f.fairly(2, nil, fair(byArg, "q")...)))
		})
		t.Run("who knows of no tenants serves their lines", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 5)...)
			held := f.fairly(1, nil, fair(byArg, "q")...)
			f.push("q", jobsOf("b", 0, 2)...)
			require.Equal(t, append(jobsOf("a", 1, 4), jobsOf("b", 0, 2)...), f.rest(held, store.Queue{Name: "q"}))
			f.noTurns("q")
		})
		t.Run("without locks", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 5)...)
			f.push("q", jobsOf("b", 0, 3)...)
			require.Equal(t, "abababaa", tenantsOf(f.workAll(3, store.Queue{Name: "q", Lined: true, Fair: byArg})))
			f.noTurns("q")
		})
		t.Run("not where workers of others are registered, nor in a unique queue", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.SAdd(t.Context(), f.key("resqued:strangers"), "q").Err())
			f.push("q", jobsOf("a", 0, 5)...)
			f.push("q", jobsOf("b", 0, 3)...)
			require.Equal(t, "aaaaabbb", tenantsOf(f.workAll(3, fair(byArg, "q")...)))
			unique := fair(byArg, "u")
			unique[0].Unique = true
			_, err := f.PushUnique(t.Context(), "u", false, []byte(jobsOf("a", 0, 1)[0]), []byte(jobsOf("a", 1, 1)[0]), []byte(jobsOf("b", 1, 1)[0]))
			require.NoError(t, err)
			require.Equal(t, "aab", tenantsOf(f.workAll(1, unique...)))
		})
		t.Run("a poll knows of them", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 3)...)
			f.fairly(1, nil, fair(byArg, "q")...)
			require.Empty(t, f.list("queue:q"))
			for _, req := range []store.PollRequest{{All: true}, {Fixed: []string{"q"}}} {
				reply, err := f.Poll(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, []string{"q"}, reply.Reasons.With(store.Free))
			}
		})
		t.Run("they count as jobs of their queue, but not as locked", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 3)...)
			f.push("q", jobsOf("b", 0, 3)...)
			f.fairly(1, nil, fair(byArg, "q")...)
			f.push("q", jobsOf("c", 0, 1)...)
			list, err := f.QueueList(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 6, list[0].Size)
			require.EqualValues(t, 5, list[0].Turns)
			require.Zero(t, list[0].Lined)
			require.Zero(t, list[0].Bounces)
			tenants, err := f.Tenants(t.Context(), "q", 10)
			require.NoError(t, err)
			require.Equal(t, []store.TenantInfo{{Tenant: "b", Jobs: 3}, {Tenant: "a", Jobs: 2}}, tenants)
			n, err := f.Length(t.Context(), "q")
			require.NoError(t, err)
			require.EqualValues(t, 6, n)
			shown, err := f.Payloads(t.Context(), "q", 0, 9)
			require.NoError(t, err)
			require.Len(t, shown, 6)
			pruned, err := f.PruneQueue(t.Context(), "q")
			require.NoError(t, err)
			require.False(t, pruned)
		})
		t.Run("they are dequeued, moved and removed", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 5)...)
			f.push("q", jobsOf("b", 0, 2)...)
			f.fairly(1, nil, fair(byArg, "q")...)
			gone, err := f.Dequeue(t.Context(), "q", func(p []byte) bool { return string(p) == jobsOf("a", 2, 1)[0] || tenantOf(string(p)) == "b" }, nil)
			require.NoError(t, err)
			require.EqualValues(t, 3, gone)
			moved, err := f.MoveJobs(t.Context(), store.MoveRequest{From: "q", To: "r", Limit: 2, Pick: func([]byte) (string, bool) { return "", true }})
			require.NoError(t, err)
			require.EqualValues(t, 2, moved.Moved)
			require.Equal(t, []string{jobsOf("a", 1, 1)[0], jobsOf("a", 3, 1)[0]}, f.list("queue:r"))
			n, err := f.RemoveQueue(t.Context(), "q", false)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			f.noTurns("q")
		})
		t.Run("a loner that waits for its turn counts", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 2)...)
			loner := store.LonerRequest{Key: "lock:A", Queue: "q", Payload: []byte(jobsOf("a", 7, 1)[0])}
			reply, err := f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			require.Equal(t, store.LonerPushed, reply.Status)
			f.fairly(1, nil, fair(byArg, "q")...)
			require.Empty(t, f.list("queue:q"))
			reply, err = f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			require.Equal(t, store.LonerDuplicate, reply.Status)
		})
		t.Run("keys that hold something else", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:turns:q"), "x", 0).Err())
			require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:turn:1:q:=a"), "x", 0).Err())
			f.push("q", jobsOf("a", 0, 3)...)
			f.push("q", jobsOf("b", 0, 3)...)
			got := f.workAll(1, fair(byArg, "q")...)
			require.ElementsMatch(t, append(jobsOf("a", 0, 3), jobsOf("b", 0, 3)...), got)
			require.Equal(t, "bbb", strings.ReplaceAll(tenantsOf(got), "a", ""))
		})
		t.Run("what a suspect is runs alone", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", jobsOf("a", 0, 3)...)
			held := f.fairly(1, nil, fair(byArg, "q")...)
			_, _, err := f.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Suspect}}))
			f.register("p1")
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: fair(byArg, "q"), Suspects: store.SetApart})
			require.Equal(t, jobsOf("a", 1, 1), payloads(reply.Jobs))
			require.Equal(t, 1, reply.Suspects)
		})
	})
}

// rest ends jobs and works all others, one at a time.
func (f *fixture) rest(held []store.Reserved, queues ...store.Queue) []string {
	f.t.Helper()
	var got []string
	for idle := 0; idle < 2; idle++ {
		if held = f.fairly(1, held, queues...); len(held) > 0 {
			idle = -1
		}
		got = append(got, payloads(held)...)
	}
	return got
}

// TestFairNames: of what the script reads as a tenant it says the same as Go, see jobkey.TestTenants; for the rest it asks.
func TestFairNames(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		for payload, want := range map[string]string{
			`{"class":"A","args":["acme",1]}`:                           "acme",
			`{"class":"A","args":[-7]}`:                                 "-7",
			`{"class":"A","args":["",1],"id":"x"}`:                      "",
			`{"class":"A","args":["a b, c]"],"queue":"q"}`:              "a b, c]",
			`{"class":"A","args":[]}`:                                   "?",
			`{"class":"A","args":[7.0]}`:                                "?",
			`{"class":"A","args":[[7]]}`:                                "?",
			`{"class":"A","args":[{"a":1}]}`:                            "?",
			`{"class":"A","args":["é"]}`:                                "?",
			`{"class":"A","args":["\u00e9"]}`:                           "?",
			`{"class":"A","args":["x"],"args":["y"]}`:                   "?",
			`{"class":"A","args":["x"],"\u0061rgs":["y"]}`:              "?",
			`{"class":"A", "args":["x"]}`:                               "?",
			`{"id":"x","class":"A","args":["x"]}`:                       "?",
			`{"class":"A","args":["` + strings.Repeat("x", 513) + `"]}`: "?",
			"{\"class\":\"A\",\"args\":[\"a\tb\"]}":                     "?",
			`nonsense`:                                                  "?",
		} {
			f.push("q", jobsOf("other", 0, 1)[0], payload, payload)
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: []store.Queue{{Name: "q", Lined: true, Fair: byArg}}})
			if want == "?" {
				require.Equal(t, payload, string(reply.Unnamed[0].Payload))
				require.Empty(t, reply.Unnamed[0].Tenant)
			} else {
				tenants, err := f.Tenants(t.Context(), "q", 9)
				require.NoError(t, err)
				require.Contains(t, tenants, store.TenantInfo{Tenant: want, Jobs: 2}, payload)
			}
			_, err := f.RemoveQueue(t.Context(), "q", false)
			require.NoError(t, err)
		}
		f.push("q", `{"class":"A","args":[1,"b"]}`, `{"class":"A","args":["x","b"]}`, `{"class":"A","args":["y"]}`)
		reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: []store.Queue{{Name: "q", Lined: true, Fair: store.NewFair(1, nil, 1)}}})
		require.Equal(t, `{"class":"A","args":[1,"b"]}`, string(reply.Jobs[0].Payload))
		require.Len(t, reply.Unnamed, 1)
	})
}

// TestFairForThousands: more threads and tenants than a script can unpack at once.
func TestFairForThousands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	const tenants, threads = 4500, 4096
	f := setup(t, server)
	var all []string
	for i := range tenants {
		all = append(all, jobsOf(fmt.Sprint("t", i), 0, 1)...)
	}
	for i := range tenants {
		all = append(all, jobsOf(fmt.Sprint("t", i), 1, 1)...)
	}
	f.push("q", all...)
	var held, got []store.Reserved
	for len(f.list("queue:q")) > 0 { // one job of each call leaves the rest in lines
		held = f.fairly(1, held, fair(byArg, "q")...)
		got = append(got, held...)
	}
	for idle := 0; idle < 2; idle++ {
		if held = f.fairly(threads, held, fair(byArg, "q")...); len(held) > 0 {
			idle = -1
		}
		got = append(got, held...)
	}
	require.ElementsMatch(t, all, payloads(got))
	// No tenant has its second job before all have had their first, however many a call knows of: newcomers, which
	// were met while some were worked, aside.
	first, second := map[string]bool{}, 0
	for _, j := range got[len(got)-tenants:] {
		if tenant := tenantOf(string(j.Payload)); first[tenant] {
			second++
		} else {
			first[tenant] = true
		}
	}
	require.LessOrEqual(t, second, 20)
	for range tenants/64 + 1 { // each look forgets some turns of tenants without jobs
		_, err := f.Poll(t.Context(), store.PollRequest{All: true})
		require.NoError(t, err)
	}
	f.noTurns("q")
}

// TestFairForLargePayloads: a call reads hardly more than it has room for, which the server would stand still for.
func TestFairForLargePayloads(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	const jobs = 60
	all := make([]string, jobs)
	for i := range all {
		all[i] = fmt.Sprintf(`{"class":"M","args":["a",%d,%q]}`, i, strings.Repeat("x", 300_000))
	}
	c.push("q", all...)
	var got []string
	take := func(n int) {
		held := c.fairly(n, nil, fair(byArg, "q")...)
		got = append(got, payloads(held)...)
	}
	require.LessOrEqual(t, looked(t, c.watch(func() { take(1) })), 5)
	for len(c.list("queue:q")) > 0 {
		take(1)
	}
	before := len(got)
	read := looked(t, c.watch(func() { take(100) }))
	require.Greater(t, len(got), before+10)
	require.Less(t, read, 3*(len(got)-before))
	require.Equal(t, all[:len(got)], got)
}

// TestLargePayloadsThatGoNames: so little is read, too, where Go has to name the tenants or the locks of jobs.
func TestLargePayloadsThatGoNames(t *testing.T) {
	t.Parallel()
	byGo := fair(store.NewFair(store.ByGo, nil, 1), "q")
	named := lined("q")
	named[0].Named = true
	for name, queues := range map[string][]store.Queue{"tenants": byGo, "locks": named, "locks, lines off": {{Name: "q", Locked: true, Named: true}}} {
		c := crowd(t)
		for i := range 40 {
			c.push("q", fmt.Sprintf(`{"class":"M","args":["a",%d,%q]}`, i, strings.Repeat("x", 300_000)))
		}
		var reply store.ExchangeReply
		read := looked(t, c.watch(func() { reply = c.exchange(store.ExchangeRequest{Wants: c.wants(30), Queues: queues}) }))
		require.NotEmpty(t, reply.Unnamed, name)
		require.LessOrEqual(t, read, 25, name)
	}
}

// TestLargePayloadsInLines: nor is more read of lines.
func TestLargePayloadsInLines(t *testing.T) {
	t.Parallel()
	c := crowd(t)
	const locks = 60
	for k := range 2 {
		for i := range locks {
			c.push("q", fmt.Sprintf(`{"class":"M","args":[%d],"k":%d,"x":%q}`, i, k, strings.Repeat("x", 300_000*k)))
		}
	}
	held := c.turn(locks, nil, "q")
	require.Len(t, held, locks)
	for len(c.list("queue:q")) > 0 {
		require.Empty(t, c.turn(1, nil, "q"))
	}
	var got []store.Reserved
	read := looked(t, c.watch(func() { got = c.turn(locks, held, "q") }))
	require.Greater(t, len(got), 10)
	require.LessOrEqual(t, read, 2*len(got))
	for len(got) < locks {
		more := c.turn(locks, nil, "q")
		require.NotEmpty(t, more)
		got = append(got, more...)
	}
}

// TestNewerJobsThatGoNames: behind more locked jobs than a call looks at, the locks of newer ones are asked for.
func TestNewerJobsThatGoNames(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		queues := []store.Queue{{Name: "q", Locked: true, Named: true}}
		f.push("q", lockmates("A", 200)...)
		var names []store.LockName
		call := func() (got []string) {
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: queues, Names: names})
			names = nil
			for _, n := range reply.Unnamed {
				n.Name = string(n.Payload[:len(`{"class":"A"`)])
				names = append(names, n)
			}
			return payloads(reply.Jobs)
		}
		var got []string
		for range 30 {
			got = append(got, call()...)
		}
		require.Len(t, got, 1)
		f.push("q", job("B", "[1]"))
		got = nil
		for range 6 {
			got = append(got, call()...)
		}
		require.Equal(t, []string{job("B", "[1]")}, got)
	})
}

// TestFairReach: how far a newcomer may be behind a backlog to be found is bounded by how far calls look, and by
// how many jobs may be in lines.
func TestFairReach(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	f.push("q", jobsOf("a", 0, 5000)...)
	f.push("q", jobsOf("z", 0, 1)...)
	began := 0
	var held []store.Reserved
	for tenantsOf(payloads(held)) != "z" {
		held = f.fairly(1, held, fair(byArg, "q")...)
		began++
	}
	require.LessOrEqual(t, began, 5000/512+3)
}

// TestFairShares has several processes take jobs of several tenants, end them, and give some back:
// each tenant's jobs begin in the order of their pushes, each once, and while all tenants have
// jobs waiting none begins more than its share, exactly.
func TestFairShares(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	procs, tenants := []string{"p1", "p2", "p3"}, []string{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		n := 0
		storetest.Must(t, f.redis.FlushDB(f.t.Context()).Err())
		for _, proc := range procs {
			f.register(proc)
		}
		names := map[string][]store.LockName{} // for the next call of each process
		weights := map[string]int{}
		for _, tenant := range tenants[:2] {
			weights[tenant] = rapid.IntRange(1, 5).Draw(t, "weight")
		}
		others := rapid.IntRange(1, 2).Draw(t, "weight of others")
		weight := func(tenant string) int {
			if w := weights[tenant]; w > 0 {
				return w
			}
			return others
		}
		index := rapid.SampledFrom([]int{0, store.ByGo}).Draw(t, "who names tenants")
		queues := fair(store.NewFair(index, weights, others), "q")
		queues[0].Locked = rapid.Bool().Draw(t, "locked")
		queues[0].Named = queues[0].Locked && rapid.Bool().Draw(t, "locks are named in Go")
		pushed, begun, held := map[string][]string{}, map[string][]string{}, map[string][]store.Reserved{}
		push := func(t *rapid.T) {
			var list []any
			for range rapid.IntRange(1, 20).Draw(t, "jobs") {
				n++
				tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
				payload := fmt.Sprintf(`{"class":"M","args":[%q,%d]}`, tenant, n)
				list = append(list, payload)
				pushed[tenant] = append(pushed[tenant], payload)
			}
			storetest.Must(t, f.redis.RPush(f.t.Context(), f.key("queue:q"), list...).Err())
		}
		exchange := func(t *rapid.T, proc string, wants int, all bool) int {
			req := store.ExchangeRequest{Proc: proc, Queues: queues, Wants: f.wants(wants), Names: names[proc]}
			var left []store.Reserved
			for _, j := range held[proc] {
				switch end := rapid.IntRange(0, 5).Draw(t, "end"); {
				case end == 0 && !all:
					left = append(left, j)
				case end == 1 && !all && len(req.Completions) == 0:
					// Of those in hand the last to have begun, so that the order can be told.
					list := begun[tenantOf(string(j.Payload))]
					if list[len(list)-1] != string(j.Payload) {
						left = append(left, j)
						continue
					}
					c := done(j)
					c.Kind = store.Returned
					req.Completions = append(req.Completions, c)
					begun[tenantOf(string(j.Payload))] = list[:len(list)-1]
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
					tenant := tenantOf(string(j.Payload))
					held[proc] = append(held[proc], j)
					begun[tenant] = append(begun[tenant], string(j.Payload))
				}
				got += len(reply.Jobs)
				req.Completions, req.Wants, req.Names = nil, req.Wants[len(reply.Jobs):], nil
				for _, name := range reply.Unnamed {
					name.Name, name.Tenant = string(name.Payload), tenantOf(string(name.Payload))
					req.Names = append(req.Names, name)
				}
				if names[proc] = req.Names; len(req.Wants) == 0 || len(req.Names) == 0 {
					return got
				}
			}
		}
		check := func(t *rapid.T) {
			for tenant, list := range begun {
				if !slices.Equal(list, pushed[tenant][:len(list)]) {
					t.Fatalf("of %s began\n%q, pushed were\n%q", tenant, list, pushed[tenant])
				}
			}
		}
		some := func(t *rapid.T) {
			exchange(t, rapid.SampledFrom(procs).Draw(t, "process"), rapid.IntRange(0, 6).Draw(t, "wants"), false)
		}
		t.Repeat(map[string]func(*rapid.T){"push": push, "exchange": some, "exchange 2": some, "exchange 3": some, "": check})

		// Now all have a backlog that is known. From any instant on the shares are those of the weights.
		var list []any
		for range 200 {
			for _, tenant := range tenants {
				n++
				payload := fmt.Sprintf(`{"class":"M","args":[%q,%d]}`, tenant, n)
				list = append(list, payload)
				pushed[tenant] = append(pushed[tenant], payload)
			}
		}
		storetest.Must(t, f.redis.RPush(f.t.Context(), f.key("queue:q"), list...).Err())
		for i := range 24 { // the jobs are known, and what came back has run
			exchange(t, procs[i%3], 3, true)
		}
		before := map[string]int{}
		for tenant, list := range begun {
			before[tenant] = len(list)
		}
		for i := range 12 {
			exchange(t, procs[i%3], rapid.IntRange(1, 6).Draw(t, "wants"), true)
			check(t)
			for _, x := range tenants {
				for _, y := range tenants {
					a, b := len(begun[x])-before[x], len(begun[y])-before[y]
					if len(begun[x]) == len(pushed[x]) || len(begun[y]) == len(pushed[y]) {
						continue
					}
					// Of start-time fair queueing the bound: one job of each.
					if d := float64(a)/float64(weight(x)) - float64(b)/float64(weight(y)); d > 1/float64(weight(x))+1/float64(weight(y))+1e-9 {
						t.Fatalf("%s (weight %d) began %d, %s (%d) %d", x, weight(x), a, y, weight(y), b)
					}
				}
			}
		}
		for idle := 0; idle < 2*len(procs); idle++ {
			if exchange(t, procs[idle%len(procs)], 6, true) > 0 {
				idle = -1
			}
		}
		check(t)
		for tenant, list := range pushed {
			if len(begun[tenant]) != len(list) {
				t.Fatalf("of %s began %d of %d", tenant, len(begun[tenant]), len(list))
			}
		}
		for _, key := range []string{"queue:q", "resqued:lines:q", "resqued:turns:q", "resqued:turned", "resqued:ready:q", "resqued:lined", "resqued:awaited"} {
			if f.exists(key) {
				t.Fatalf("left: %s", key)
			}
		}
	})
}

// TestFairCost: how many commands a job costs depends neither on how many wait nor, beyond a few, on how many tenants
// there are.
func TestFairCost(t *testing.T) {
	t.Parallel()
	for _, tenants := range []int{0, 1, 10, 1000} {
		server := redistest.Start(t, redistest.Options{})
		f := setup(t, server)
		const jobs = 4000
		var list []any
		for i := range jobs + 80 {
			list = append(list, fmt.Sprintf(`{"class":"Mail","args":["tenant %d",%d]}`, i%max(tenants, 1), i))
		}
		require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:q"), list...).Err())
		queues := fair(byArg, "q")
		if tenants == 0 {
			queues[0].Fair = nil
		}
		held := f.fairly(8, nil, queues...)
		before := server.Commands(t)
		_, spent := commandStat(t, f.redis, "evalsha")
		for range jobs / 8 {
			held = f.fairly(8, held, queues...)
			require.Len(t, held, 8)
		}
		each := float64(server.Commands(t)-before) / jobs
		_, usec := commandStat(t, f.redis, "evalsha")
		t.Logf("%d tenants: %.1f commands and %.1f µs of the server a job", tenants, each, float64(usec-spent)/jobs)
		require.Less(t, each, 12.0)
	}
}
