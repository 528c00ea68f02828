package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// limited is a fixture whose jobs have limits.
type limited struct {
	*fixture
	gates func(queue, payload string) []store.Gate
	next  time.Duration // of the last call
	once  bool          // no call is repeated
	ends  []store.Reserved
	told  []store.Admission
}

// take ends some jobs, takes up to n and returns the ones that may begin. ends are jobs that the process ends, told why.
func (l *limited) take(proc string, n int, ended []store.Completion, queues ...store.Queue) (jobs []store.Reserved, more bool) {
	l.t.Helper()
	for i := range ended {
		ended[i].Job.Limited = true
	}
	req := store.ExchangeRequest{Proc: proc, Completions: ended, Wants: l.wants(n), Queues: queues}
	reply := l.exchange(req)
	gated := make([]store.Gated, len(reply.Jobs))
	for i, j := range reply.Jobs {
		gated[i] = store.Gated{Token: j.Token, Lined: j.Lined, Passed: j.Passed, Gates: l.gates(j.Queue, string(j.Payload))}
	}
	l.ends, l.told = nil, nil
	if len(gated) == 0 {
		return nil, reply.More
	}
	told, next, err := l.Limit(l.t.Context(), proc, gated, false)
	require.NoError(l.t, err)
	again := told
	if !l.once { // its answer was lost, say
		again, _, err = l.Limit(l.t.Context(), proc, gated, true)
		require.NoError(l.t, err)
	}
	l.next = next
	for i, a := range told {
		require.Equal(l.t, a.Begins, again[i].Begins)
		require.Equal(l.t, a.Waits, again[i].Waits)
		switch {
		case a.Begins:
			jobs = append(jobs, reply.Jobs[i])
		case !a.Waits:
			l.ends, l.told = append(l.ends, reply.Jobs[i]), append(l.told, a)
		}
	}
	return jobs, true
}

// all takes until nothing more begins.
func (l *limited) all(proc string, queues ...store.Queue) (jobs []store.Reserved) {
	l.t.Helper()
	for range 1000 {
		got, more := l.take(proc, 50, nil, queues...)
		jobs = append(jobs, got...)
		if !more {
			return jobs
		}
	}
	require.Fail(l.t, "it goes on and on")
	return nil
}

// over ends the processes, and fails if anything is left of limits and lines.
func (l *limited) over(t require.TestingT) {
	procs, err := l.redis.ZRange(l.t.Context(), l.key("resqued:procs"), 0, -1).Result()
	require.NoError(t, err)
	for _, proc := range procs {
		_, err := l.Unregister(l.t.Context(), proc)
		require.NoError(t, err)
	}
	keys, err := l.redis.Keys(l.t.Context(), l.key("resqued:*")).Result()
	require.NoError(t, err)
	for _, key := range keys {
		for _, word := range []string{"limit:", "slots:", "room", "line", "awaited", "ready:", "gates"} {
			require.NotContains(t, key, l.key("resqued:"+word))
		}
	}
}

func dones(jobs ...store.Reserved) (out []store.Completion) {
	for _, j := range jobs {
		out = append(out, done(j))
	}
	return out
}

func series(class string, from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, job(class, fmt.Sprintf("[%d]", i)))
	}
	return out
}

func TestLimits(t *testing.T) {
	t.Parallel()
	plain := func(names ...string) (out []store.Queue) {
		for _, name := range names {
			out = append(out, store.Queue{Name: name})
		}
		return out
	}
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		by := func(t *testing.T, gates ...store.Gate) *limited {
			return &limited{fixture: setup(t, server), gates: func(string, string) []store.Gate { return gates }}
		}
		two := store.Gate{Rule: "two", Key: "", Concurrency: 2, Cost: 1}

		t.Run("no more run than may, in the order of the pushes", func(t *testing.T) {
			l := by(t, two)
			l.push("q", series("A", 0, 120)...)
			var got []string
			held := l.all("p1", plain("q")...)
			for len(held) > 0 {
				require.Len(t, held, min(2, 120-len(got)))
				got = append(got, payloads(held)...)
				held, _ = l.take("p1", 9, dones(held...), plain("q")...)
			}
			require.Equal(t, series("A", 0, 120), got)
			l.over(t)
		})
		t.Run("over several queues and processes", func(t *testing.T) {
			l := by(t, two)
			l.register("p2")
			l.push("q", series("A", 0, 10)...)
			l.push("r", series("A", 10, 20)...)
			held := l.all("p1", plain("q")...)
			require.Len(t, held, 2)
			require.Empty(t, l.all("p2", plain("r")...))
			n := 0
			for proc := "p1"; len(held) > 0; n++ {
				if n == 2 {
					proc = "p2"
				}
				l.exchange(store.ExchangeRequest{Proc: proc, Completions: []store.Completion{{Job: limitedJob(held[0]), Kind: store.Done}}})
				held = append(held[1:], l.all("p2", plain("q", "r")...)...)
				require.LessOrEqual(t, len(held), 2)
			}
			require.Equal(t, 20, n)
			l.over(t)
		})
		t.Run("jobs that have ended leave room, however long others run", func(t *testing.T) {
			l := by(t, store.Gate{Rule: "twelve", Concurrency: 12, Cost: 1})
			l.register("p2")
			l.push("q", series("A", 0, 30)...)
			held, _ := l.take("p1", 12, nil, plain("q")...)
			require.Len(t, held, 12)
			_, _ = l.take("p1", 0, dones(held[9:]...))
			jobs, _ := l.take("p2", 20, nil, plain("q")...)
			require.Len(t, jobs, 3)
			_, _ = l.take("p2", 0, dones(jobs...))
			require.Len(t, l.all("p1", plain("q")...), 3, "their line was told")
		})
		t.Run("jobs that ended before a line began leave room", func(t *testing.T) {
			l := by(t, store.Gate{Rule: "twelve", Concurrency: 12, Every: time.Hour, Burst: 20, Cost: 1})
			l.register("p2")
			l.push("q", series("A", 0, 40)...)
			held, _ := l.take("p1", 8, nil, plain("q")...)
			require.Len(t, held, 8)
			jobs, _ := l.take("p2", 3, nil, plain("q")...)
			_, _ = l.take("p2", 0, dones(jobs...))
			l.gates = func(string, string) []store.Gate {
				return []store.Gate{{Rule: "twelve", Concurrency: 12, Every: time.Hour, Burst: 1, Cost: 1}}
			}
			for range 9 {
				jobs, _ = l.take("p1", 1, nil, plain("q")...)
				require.Empty(t, jobs, "because of the rate, it waits")
			}
			l.gates = func(string, string) []store.Gate { return []store.Gate{{Rule: "twelve", Concurrency: 12, Cost: 1}} }
			_, err := l.ResetLimit(t.Context(), "twelve:")
			require.NoError(t, err)
			_, err = l.Poll(t.Context(), store.PollRequest{All: true, Share: time.Second})
			require.NoError(t, err)
			require.Len(t, l.all("p1", plain("q")...), 4)
		})
		t.Run("a dead process's jobs no longer count, and are next", func(t *testing.T) {
			l := by(t, two)
			l.register("p2")
			l.push("q", series("A", 0, 5)...)
			held := l.all("p1", plain("q")...)
			require.Len(t, held, 2)
			_, _, err := l.Fence(t.Context(), "p1", true)
			require.NoError(t, err)
			require.NoError(t, l.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Requeue}, {Token: held[1].Token, Action: store.Requeue}}))
			require.Equal(t, series("A", 0, 2), payloads(l.all("p2", plain("q")...)))
		})
		t.Run("a record that is lost is noticed", func(t *testing.T) {
			l := by(t, two)
			l.push("q", series("A", 0, 5)...)
			held := l.all("p1", plain("q")...)
			require.NoError(t, l.redis.HDel(t.Context(), l.key("resqued:inflight:p1"), held[0].Token).Err())
			require.NoError(t, l.redis.ZIncrBy(t.Context(), l.key("resqued:limit:two:"), -60000, "p1#"+held[0].Token).Err())
			reply, err := l.Poll(t.Context(), store.PollRequest{All: true})
			require.NoError(t, err)
			require.Equal(t, []string{"q"}, reply.Reasons.With(store.Free))
			require.Equal(t, series("A", 2, 3), payloads(l.all("p1", plain("q")...)))
		})
		t.Run("all limits of a job or none", func(t *testing.T) {
			l := by(t)
			one := store.Gate{Rule: "one", Key: "x", Concurrency: 1, Cost: 1}
			l.gates = func(_, payload string) []store.Gate {
				if strings.Contains(payload, `"B"`) {
					return []store.Gate{one}
				}
				return []store.Gate{two, one}
			}
			l.push("q", job("B", "[0]"), job("A", "[0]"), job("A", "[1]"))
			held := l.all("p1", plain("q")...)
			require.Equal(t, []string{job("B", "[0]")}, payloads(held))
			infos, _, err := l.Limits(t.Context())
			require.NoError(t, err)
			require.Equal(t, []store.LimitInfo{{
				Gate: "one:x", Running: map[string][]store.RunName{"": {{Proc: "p1", Token: held[0].Token}}}, Waiting: map[string]int64{"q": 2},
			}}, infos)
			for i := range 2 {
				held, _ = l.take("p1", 9, dones(held...), plain("q")...)
				require.Equal(t, []string{job("A", fmt.Sprintf("[%d]", i))}, payloads(held))
			}
			l.take("p1", 0, dones(held...))
			l.over(t)
		})
		t.Run("a rate lets a burst go, then one at a time", func(t *testing.T) {
			l := by(t, store.Gate{Rule: "slow", Every: time.Hour, Burst: 3, Cost: 1})
			l.push("q", series("A", 0, 5)...)
			held := l.all("p1", plain("q")...)
			require.Equal(t, series("A", 0, 3), payloads(held))
			held, _ = l.take("p1", 9, dones(held...), plain("q")...)
			require.Empty(t, held)
			infos, _, err := l.Limits(t.Context())
			require.NoError(t, err)
			require.Len(t, infos, 1)
			require.InDelta(t, time.Hour.Seconds(), time.Until(infos[0].Next).Seconds(), 60)
			reply, err := l.Poll(t.Context(), store.PollRequest{All: true})
			require.NoError(t, err)
			require.Empty(t, reply.Reasons.With(store.Free))

			l.gates = func(string, string) []store.Gate { return nil } // the limit is no longer configured
			require.NoError(t, l.redis.ZAdd(t.Context(), l.key("resqued:limit:due"), redis.Z{Member: "\x01slow:"}).Err())
			require.Equal(t, series("A", 3, 5), payloads(l.all("p1", plain("q")...)))
		})
		t.Run("a rate is kept though jobs are late", func(t *testing.T) {
			l := by(t, store.Gate{Rule: "fast", Every: 20 * time.Millisecond, Burst: 1, Cost: 1})
			l.push("q", series("A", 0, 30)...)
			n, began := 0, time.Now()
			for n < 30 {
				n += len(l.all("p1", plain("q")...))
				<-time.After(60 * time.Millisecond) // as a poll would
				require.LessOrEqual(t, n, 2+int((time.Since(began)+500*time.Millisecond)/(20*time.Millisecond)))
			}
		})
		t.Run("costs", func(t *testing.T) {
			l := by(t)
			l.gates = func(_, payload string) []store.Gate {
				cost := int64(1)
				if strings.Contains(payload, "Big") {
					cost = 4
				}
				return []store.Gate{{Rule: "units", Every: time.Hour, Burst: 5, Cost: cost}}
			}
			l.push("q", job("Small", "[0]"), job("Small", "[1]"), job("Big", "[]"), job("Small", "[2]"))
			require.Equal(t, []string{job("Small", "[0]"), job("Small", "[1]")}, payloads(l.all("p1", plain("q")...)), "small ones do not pass a big one")
			require.InDelta(t, time.Hour.Milliseconds(), l.next.Milliseconds(), 60000)
		})
		t.Run("what a process ends itself", func(t *testing.T) {
			ends := two
			ends.Ends = true
			l := by(t, ends, store.Gate{Rule: "slow", Every: time.Minute, Burst: 9, Cost: 1})
			l.push("q", series("A", 0, 3)...)
			held, _ := l.take("p1", 9, nil, plain("q")...)
			require.Len(t, held, 2)
			require.Equal(t, []store.Admission{{After: -1}}, l.told)
			l.take("p1", 0, dones(append(held, l.ends...)...))
			require.NoError(t, l.redis.Del(t.Context(), l.key("resqued:rate:slow:")).Err())
			l.over(t)
		})
		t.Run("a newer job replaces", func(t *testing.T) {
			l := by(t, store.Gate{Rule: "last", Concurrency: 1, Cost: 1, Replaces: true})
			l.push("q", series("A", 0, 1)...)
			held := l.all("p1", plain("q")...)
			l.push("q", series("A", 1, 4)...)
			require.Empty(t, l.all("p1", plain("q")...))
			require.Equal(t, map[string]store.KillRequest{held[0].Token: {Grace: store.KillGrace}}, l.kills())
			end := done(held[0])
			end.Kind, end.Killed, end.Failure = store.Failed, true, store.Record([]byte(`{"payload":null}`))
			held, _ = l.take("p1", 1, []store.Completion{end}, plain("q")...)
			replaced := 0
			for len(held) == 0 {
				require.Len(t, l.ends, 1)
				require.True(t, l.told[0].Replaced)
				replaced++
				held, _ = l.take("p1", 1, dones(l.ends...), plain("q")...)
			}
			require.Equal(t, 2, replaced)
			require.Equal(t, series("A", 3, 4), payloads(held))
		})
		t.Run("overrides", func(t *testing.T) {
			l := by(t, two)
			zero, three := 0, 3
			require.NoError(t, l.SetLimit(t.Context(), store.Override{Name: "two", Until: time.Now().Add(time.Hour), Concurrency: &zero}))
			l.push("q", series("A", 0, 6)...)
			require.Empty(t, l.all("p1", plain("q")...))
			require.InDelta(t, time.Hour.Milliseconds(), l.next.Milliseconds(), 60000)
			require.NoError(t, l.SetLimit(t.Context(), store.Override{Name: "two:", Until: time.Now().Add(time.Hour), Concurrency: &three}))
			held := l.all("p1", plain("q")...)
			require.Len(t, held, 3)
			_, over, err := l.Limits(t.Context())
			require.NoError(t, err)
			require.Len(t, over, 2)
			require.Equal(t, 3, *over[1].Concurrency)
			for _, name := range []string{"two:", "two"} {
				was, err := l.ResetLimit(t.Context(), name)
				require.NoError(t, err)
				require.True(t, was)
			}
			held, _ = l.take("p1", 9, dones(held[:2]...), plain("q")...)
			require.Len(t, held, 1)
		})
		t.Run("each host by itself", func(t *testing.T) {
			l := by(t)
			l.register("p2")
			host := "@a"
			l.gates = func(string, string) []store.Gate {
				return []store.Gate{{Rule: "host", Scope: host, Concurrency: 1, Cost: 1}}
			}
			l.push("q", series("A", 0, 4)...)
			require.Len(t, l.all("p1", plain("q")...), 1)
			host = "@b"
			var held []store.Reserved
			require.Eventually(t, func() bool {
				held = append(held, l.all("p2", plain("q")...)...)
				return len(held) > 0
			}, 5*time.Second, 50*time.Millisecond)
			require.Equal(t, series("A", 1, 2), payloads(held))
		})
		t.Run("a job of a unique queue over a limit is delayed", func(t *testing.T) {
			l := by(t, two)
			l.pushUnique("q", series("A", 0, 3)...)
			held := l.all("p1", store.Queue{Name: "q", Unique: true})
			require.Len(t, held, 2)
			n, err := l.redis.ZCard(t.Context(), l.key("resqued:delayed")).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		})
		t.Run("a job that cannot wait is not lost", func(t *testing.T) {
			l := by(t, two)
			l.push("q", series("A", 0, 3)...)
			require.NoError(t, l.redis.Set(t.Context(), l.key("resqued:line:1:q:\x01two:"), "x", 0).Err())
			l.take("p1", 9, nil, plain("q")...)
			require.Equal(t, series("A", 2, 3), payloads(l.ends))
			l.pushUnique("u", series("A", 3, 4)...)
			require.NoError(t, l.redis.Set(t.Context(), l.key("resqued:delayed"), "x", 0).Err())
			l.take("p1", 9, nil, store.Queue{Name: "u", Unique: true})
			require.Equal(t, series("A", 3, 4), payloads(l.ends))
		})
		t.Run("with locks", func(t *testing.T) {
			l := by(t, store.Gate{Rule: "three", Concurrency: 3, Cost: 1})
			l.push("q", append(lockmates("A", 4), series("B", 0, 4)...)...)
			held := l.all("p1", lined("q")...)
			require.Equal(t, append(lockmates("A", 1), series("B", 0, 2)...), payloads(held))
			held, _ = l.take("p1", 9, dones(held...), lined("q")...)
			n := 3
			for len(held) > 0 {
				n += len(held)
				locks := map[string]bool{}
				for _, j := range held {
					require.False(t, locks[j.LockKey])
					locks[j.LockKey] = true
				}
				require.LessOrEqual(t, len(held), 3)
				held, _ = l.take("p1", 9, dones(held...), lined("q")...)
				if len(held) == 0 {
					held = l.all("p1", lined("q")...)
				}
			}
			require.Equal(t, 8, n)
			l.over(t)
		})
		t.Run("what it costs to wait", func(t *testing.T) {
			if server.Mini != nil {
				t.Skip("it does not count commands")
			}
			own := redistest.Start(t, redistest.Options{})
			l := &limited{fixture: setup(t, own), gates: func(string, string) []store.Gate { return []store.Gate{two} }, once: true}
			l.push("q", series("A", 0, 1000)...)
			before := own.Commands(t)
			held := l.all("p1", plain("q")...)
			waits := float64(own.Commands(t)-before) / 1000
			before = own.Commands(t)
			for n := len(held); n < 1000; n += len(held) {
				held, _ = l.take("p1", 10, dones(held...), plain("q")...)
				require.Len(t, held, 2)
			}
			runs := float64(own.Commands(t)-before) / 1000
			t.Logf("commands a job: %.1f until it waits, %.1f until it has run", waits, runs)
			require.Less(t, waits, 10.0)
			require.Less(t, runs, 40.0)
		})
		t.Run("random lives", func(t *testing.T) {
			if server.Mini != nil {
				t.Skip("TestLimitsFindDefects uses it, and simulations do")
			}
			rapid.Check(t, func(r *rapid.T) { randomLimits(r, &limited{fixture: setup(t, server)}) })
		})
	})
}

func limitedJob(j store.Reserved) *store.Reserved {
	j.Limited = true
	return &j
}

// randomLimits pushes, takes, ends and recovers jobs under limits of the fleet. Never do more run than may; after all
// have been tried, none waits that could run; in the end all have run, and nothing is left.
func randomLimits(r *rapid.T, l *limited) {
	l.register("p2")
	queues := []store.Queue{{Name: "a"}, {Name: "b", Locked: true, Lined: true}}
	if rapid.Bool().Draw(r, "fair") {
		queues[0] = store.Queue{Name: "a", Locked: true, Lined: true, Fair: store.NewFair(0, nil, 1)}
	}
	most := map[string]int{}
	for _, rule := range []string{"all", "key"} {
		most[rule] = rapid.IntRange(1, 4).Draw(r, rule)
	}
	lockOf := func(payload string) string { return payload[:strings.Index(payload, `,"n"`)] }
	l.gates = func(_, payload string) (gates []store.Gate) {
		_, key, _ := strings.Cut(lockOf(payload), "[")
		gates = append(gates, store.Gate{Rule: "key", Key: key, Concurrency: most["key"], Cost: 1})
		if strings.Contains(payload, `"A"`) {
			gates = append(gates, store.Gate{Rule: "all", Concurrency: most["all"], Cost: 1})
		}
		return gates
	}
	held := map[string][]store.Reserved{}
	pushed, ended := 0, 0
	check := func() {
		running := map[string]int{}
		for _, jobs := range held {
			for _, j := range jobs {
				for _, g := range l.gates(j.Queue, string(j.Payload)) {
					running[g.Rule+":"+g.Key]++
				}
			}
		}
		for gate, n := range running {
			rule, _, _ := strings.Cut(gate, ":")
			require.LessOrEqual(r, n, most[rule], gate)
		}
	}
	take := func(proc string, n int, ends []store.Completion) bool {
		jobs, more := l.take(proc, n, ends, queues...)
		held[proc] = append(held[proc], jobs...)
		check()
		return more
	}
	tryAll := func() {
		for i := 0; take("p1", 50, nil); i++ {
			require.Less(r, i, 100, "it goes on and on")
		}
		running, locks := map[string]int{}, map[string]bool{}
		for _, jobs := range held {
			for _, j := range jobs {
				locks[j.Queue+lockOf(string(j.Payload))] = true
				for _, g := range l.gates(j.Queue, string(j.Payload)) {
					running[g.Rule+":"+g.Key]++
				}
			}
		}
		for _, q := range queues {
			waiting, err := l.Payloads(l.t.Context(), q.Name, 0, 1000)
			require.NoError(r, err)
			for _, p := range waiting {
				gates := l.gates(q.Name, string(p))
				full := slices.ContainsFunc(gates, func(g store.Gate) bool { return running[g.Rule+":"+g.Key] >= most[g.Rule] })
				require.True(r, full || q.Locked && (locks["a"+lockOf(string(p))] || locks["b"+lockOf(string(p))]), "%s of %s could run beside %v", p, q.Name, running)
			}
		}
	}
	proc := func() string { return rapid.SampledFrom([]string{"p1", "p2"}).Draw(r, "proc") }
	for range rapid.IntRange(5, 30).Draw(r, "steps") {
		switch rapid.IntRange(0, 5).Draw(r, "step") {
		case 0, 1:
			for range rapid.IntRange(1, 8).Draw(r, "pushes") {
				class, key := rapid.SampledFrom([]string{"A", "B"}).Draw(r, "class"), rapid.IntRange(0, 2).Draw(r, "key")
				l.push(rapid.SampledFrom([]string{"a", "b"}).Draw(r, "queue"), fmt.Sprintf(`{"class":%q,"args":[%d],"n":%d}`, class, key, pushed))
				pushed++
			}
		case 2:
			take(proc(), rapid.IntRange(1, 5).Draw(r, "wants"), nil)
		case 3:
			p := proc()
			n := min(len(held[p]), rapid.IntRange(1, 4).Draw(r, "ends"))
			ends := dones(held[p][:n]...)
			for i := range ends {
				if ends[i].Kind = rapid.SampledFrom([]store.Kind{store.Done, store.Done, store.Failed, store.Requeued, store.Returned}).Draw(r, "kind"); ends[i].Kind == store.Done || ends[i].Kind == store.Failed {
					ended++
				}
			}
			held[p] = slices.Clone(held[p][n:])
			take(p, rapid.IntRange(0, 4).Draw(r, "wants"), ends)
		case 4:
			p := proc()
			_, _, err := l.Fence(l.t.Context(), p, true)
			require.NoError(r, err)
			var verdicts []store.Verdict
			for _, j := range held[p] {
				verdicts = append(verdicts, store.Verdict{Token: j.Token, Action: store.Back})
			}
			require.NoError(r, l.Recover(l.t.Context(), p, verdicts))
			held[p] = nil
			l.register(p)
		case 5:
			tryAll()
		}
	}
	for ended < pushed {
		tryAll()
		n := 0
		for _, p := range []string{"p1", "p2"} {
			ends := dones(held[p]...)
			held[p], n = nil, n+len(ends)
			take(p, 0, ends)
		}
		require.Positive(r, n, "nothing runs, though %d jobs are left", pushed-ended)
		ended += n
	}
	l.over(r)
}

// limitMutants are defects of limits, which random lives must notice.
var limitMutants = []storetest.Mutant{
	{"more run than a limit lets", "limit_together", `g.running + n <= g.most then`, `g.running + n <= g.most + 1 then`},
	{"a failure does not wake those that wait", "exchange_finish", `slots.free(prefix, proc, e.token, e.gates)`, ``},
	{"jobs that run go from the count", "limits", `if here[token] then left`, `if not here[token] then left`},
	{"an end does not wake those that wait", "exchange_first", `going = pcall_('EXISTS', prefix .. 'resqued:gates') == 0`, ``},
	{"an end beside others does not wake those that wait", "exchange_finish", `for c = 1, limited and nready or 0 do slots.free(prefix, proc, ARGV[plainat + c - 1], released) end`, ``},
	{"too many begin together", "limit_together", `if g.waits or full(g, #g.jobs / 2) then easy = false end`, `if g.waits or full(g, 1) then easy = false end`},
	{"a job that waits keeps its record", "limit", `call('HDEL', KEYS[1], token)`, ``},
	{"a line for a full limit is tried again and again", "limits", `known.queued(text, function(queue) pcall_('ZREM', prefix .. 'resqued:ready:' .. queue, name) end)`, ``},
	{"a line is no longer ready after its next job", "exchange_lines", `line.known.kept('ZADD', prefix .. 'resqued:ready:' .. queue, fmt('%.0f', us - 9e15), name)`, ``},
	{"a line is not told that there is room", "limit", `slots.wake(prefix, known, g.name, math.max(1, room), us)`, ``},
}

// TestLimitsFindDefects runs random lives on scripts with a defect each, and wants them to fail.
func TestLimitsFindDefects(t *testing.T) {
	t.Parallel()
	server := redistest.Mini(t)
	defects := storetest.Defects{Mutants: limitMutants, Prepare: func(t *testing.T, m storetest.Mutant) func(*rapid.T) {
		return func(r *rapid.T) {
			f := setup(t, server)
			require.NoError(t, storetest.Alter(f.Redis(), m[1], m[2], m[3]))
			randomLimits(r, &limited{fixture: f})
		}
	}}
	defects.Find(t)
}

// TestLimitsAndASteppedClock moves the clock of Redis. A rate then lets at most one burst more begin, and nothing waits
// for the old time.
func TestLimitsAndASteppedClock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Clock: true})
	gate := store.Gate{Rule: "rate", Every: 100 * time.Millisecond, Burst: 2, Cost: 1}
	l := &limited{fixture: setup(t, server), gates: func(string, string) []store.Gate { return []store.Gate{gate} }}
	queue, beat := store.Queue{Name: "q"}, store.BeatRequest{Proc: "p1"}
	l.push("q", series("A", 0, 8)...)
	jobs := l.all("p1", queue)
	require.NotEmpty(t, jobs)
	for _, step := range []time.Duration{-time.Hour, 2 * time.Hour, -30 * time.Minute} {
		server.StepClock(t, step)
		_, err := l.Beat(t.Context(), beat)
		require.NoError(t, err)
		l.register("p1") // with a lease by the new time
		at := time.Now()
		var more []store.Reserved
		require.Eventually(t, func() bool {
			_, err := l.Poll(t.Context(), store.PollRequest{All: true, Share: time.Second})
			require.NoError(t, err)
			got, _ := l.take("p1", 1, nil, queue)
			more = append(more, got...)
			return len(more) > 0
		}, time.Minute, 5*time.Millisecond)
		require.LessOrEqual(t, len(more), 2+int(time.Since(at)/gate.Every)+5)
		jobs = append(jobs, more...)
	}
	_, _ = l.take("p1", 0, dones(jobs...))
}
