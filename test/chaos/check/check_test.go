package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/chaos/ledger"
)

const second = time.Second

// book builds histories for tests.
type book struct {
	h     *History
	fence int64
}

func newBook() *book { return &book{h: NewHistory()} }

func (b *book) push(id string) *Push {
	p := &Push{ID: id, Queue: "high", Expect: ExpectDone, Answer: Acknowledged, Tried: second, Answered: second}
	b.h.Pushes[id] = p
	return p
}

// run adds a run in process proc from at to end, with its outcome. An empty outcome is a run
// that was last seen at end.
func (b *book) run(id, proc, lock string, at, end time.Duration, outcome string) {
	b.fence++
	e := ledger.Entry{What: ledger.Start, At: at, Proc: proc, Run: id + proc + at.String(), ID: id, Lock: lock, Fence: b.fence}
	if lock == "" {
		e.Fence = 0
	}
	last := e
	last.What, last.At = outcome, end
	if outcome == "" {
		last.What = ledger.Act
	}
	b.h.Add([]ledger.Entry{e, last})
	b.h.Sort()
}

// job adds a job that was pushed and done as expected.
func (b *book) job(id, lock string, at time.Duration) {
	b.push(id)
	b.run(id, "p1", lock, at, at+second/10, ledger.End)
	b.h.Processed++
}

func (b *book) fault(f Fault) { b.h.Faults = append(b.h.Faults, f) }

// good returns a history that passes every check.
func good() *book {
	b := newBook()
	b.job("chaos-1", "", 2*second)
	b.job("chaos-2", "k", 2*second)
	b.job("chaos-3", "k", 3*second)
	// A job whose process was killed.
	b.push("chaos-4")
	b.run("chaos-4", "p2", "k", 4*second, 4*second, "")
	b.fault(Fault{Kind: "worker-kill", Procs: []string{"p2"}, From: 5 * second, To: 5 * second, Noticed: 1, Recovered: second / 5, Effect: Kills})
	b.run("chaos-4", "p1", "k", 6*second, 7*second, ledger.End)
	b.h.Processed++
	// A job that fails as expected.
	b.push("chaos-5").Expect = ExpectPanic
	b.run("chaos-5", "p1", "", 2*second, 2*second, ledger.Fail)
	b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-5", Exception: ExpectPanic})
	b.h.Processed++
	b.h.FailedStat++
	return b
}

func requireFails(t *testing.T, r Result, text string) {
	t.Helper()
	require.NotEmpty(t, r.Violations, "%s", r.Name)
	require.Contains(t, r.String(), text)
	require.Contains(t, r.String(), "FAILED")
}

func TestGoodHistory(t *testing.T) {
	t.Parallel()
	h := good().h
	for _, r := range []Result{
		Conservation(h), Overlap(h), Fence(h), Repeats(h), Failures(h), Recovery(h.Faults, nil, nil), Residue(nil),
		Vacuous(h.Faults, []string{"worker-kill"}, 1, 1, 1, []Result{Overlap(h)}),
	} {
		require.Empty(t, r.Violations, r.Name)
		require.Positive(t, r.Looked, r.Name)
		require.NotContains(t, r.String(), "FAILED")
	}
}

func TestConservation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(b *book)
		says  string
	}{
		"a lost job": {func(b *book) { b.push("chaos-9") }, "chaos-9"},
		"a job that began and was lost": {func(b *book) {
			b.push("chaos-9")
			b.run("chaos-9", "p1", "", 2*second, 3*second, "")
		}, "is lost"},
		"a refused job that runs": {func(b *book) { b.job("chaos-9", "", 2*second); b.h.Pushes["chaos-9"].Answer = Refused }, "was refused"},
		"a job that failed twice": {func(b *book) {
			b.h.Failed = append(b.h.Failed, b.h.Failed[0])
			b.h.FailedStat++
		}, "failed 2 times"},
		"a job in two places":           {func(b *book) { b.push("chaos-9"); b.h.Places["chaos-9"] = []string{"queue:a", "delayed"} }, "several places"},
		"a failed job that still waits": {func(b *book) { b.h.Places["chaos-5"] = []string{"queue:a"} }, "several places"},
		"a job that was never pushed":   {func(b *book) { b.h.Places["chaos-8"] = []string{"queue:a"} }, "was never pushed"},
		"a failure of an unknown job": {func(b *book) {
			b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-8"})
			b.h.FailedStat++
		}, "was never pushed"},
		"a job that was counted twice":     {func(b *book) { b.h.Processed++ }, "stat:processed"},
		"a failure that was not counted":   {func(b *book) { b.h.FailedStat-- }, "stat:failed"},
		"a foreign worker took too many":   {func(b *book) { b.push("chaos-9").Queue = "shared"; b.h.SharedQueue = "shared" }, "is lost"},
		"only the shared queue is excused": {func(b *book) { b.push("chaos-9"); b.h.SharedQueue, b.h.MaybeTaken = "shared", 5 }, "is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := good()
			c.spoil(b)
			requireFails(t, Conservation(b.h), c.says)
		})
	}

	t.Run("an ambiguous push may be either", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.push("chaos-8").Answer = Ambiguous
		b.job("chaos-9", "", 2*second)
		b.h.Pushes["chaos-9"].Answer = Ambiguous
		require.Empty(t, Conservation(b.h).Violations)
	})

	t.Run("what foreign workers took is not lost", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.push("chaos-8")
		b.h.Taken["chaos-8"] = true
		b.push("chaos-9").Queue = "shared"
		b.h.SharedQueue, b.h.MaybeTaken = "shared", 1
		// Its process died after its end but before that was reported; then others took it.
		b.push("chaos-7")
		b.run("chaos-7", "p1", "", 2*second, 3*second, ledger.End)
		b.h.Taken["chaos-7"] = true
		require.Empty(t, Conservation(b.h).Violations)
	})
}

func TestInstant(t *testing.T) {
	t.Parallel()
	snapshot := func() Snapshot {
		return Snapshot{
			From: 10 * second, To: 11 * second, Places: map[string]int{}, Failed: map[string]bool{"chaos-5": true}, Taken: map[string]bool{},
		}
	}
	require.Empty(t, Instant(good().h, snapshot(), sorted(good().h.Pushes), 0))
	for name, spoil := range map[string]func(b *book, s *Snapshot){
		"a job in two places":             func(_ *book, s *Snapshot) { s.Places["chaos-1"] = 2 },
		"a failed job in a place":         func(_ *book, s *Snapshot) { s.Places["chaos-5"] = 1 },
		"a taken job in a place":          func(_ *book, s *Snapshot) { s.Places["chaos-4"], s.Taken["chaos-4"] = 1, true },
		"a job in no place":               func(b *book, _ *Snapshot) { b.push("chaos-9") },
		"a job that ended only later":     func(b *book, _ *Snapshot) { b.job("chaos-9", "", 11*second) },
		"a job of the wrong queue":        func(b *book, _ *Snapshot) { b.push("chaos-9"); b.h.SharedQueue = "shared" },
		"a failure that was there before": func(_ *book, s *Snapshot) { delete(s.Failed, "chaos-5") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := good(), snapshot()
			spoil(b, &s)
			require.NotEmpty(t, Instant(b.h, s, sorted(b.h.Pushes), 1))
		})
	}
	t.Run("a push under way may be missing", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.push("chaos-9").Answered = 10*second + 1
		require.Empty(t, Instant(b.h, snapshot(), sorted(b.h.Pushes), 0))
	})
	t.Run("a foreign pop under way may be missing", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.push("chaos-9").Queue = "shared"
		b.h.SharedQueue = "shared"
		require.Empty(t, Instant(b.h, snapshot(), sorted(b.h.Pushes), 1))
		require.NotEmpty(t, Instant(b.h, snapshot(), sorted(b.h.Pushes), 0))
	})
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	t.Run("two holders at a time", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.run("chaos-9", "p1", "k", 2*second+second/20, 2*second+second/2, ledger.End)
		requireFails(t, Overlap(b.h), "chaos-9 began")
	})
	t.Run("a holder that acts after its end", func(t *testing.T) {
		t.Parallel()
		b := good()
		r := b.h.byID["chaos-2"][0] // its grandchild, that is
		b.h.Add([]ledger.Entry{{What: ledger.Act, At: 3*second + 1, Run: r.Run, ID: r.ID}})
		requireFails(t, Overlap(b.h), "chaos-3 began")
	})
	t.Run("one that outlasts several", func(t *testing.T) {
		t.Parallel()
		b := newBook()
		b.run("chaos-1", "p1", "k", second, 9*second, ledger.End)
		b.run("chaos-2", "p1", "k", 2*second, 3*second, ledger.End)
		b.run("chaos-3", "p1", "k", 4*second, 5*second, ledger.End)
		require.Len(t, Overlap(b.h).Violations, 2)
	})
	t.Run("only the frozen are excused, and only while they were", func(t *testing.T) {
		t.Parallel()
		late := func(f Fault) Result {
			b := newBook()
			b.run("chaos-1", "p1", "k", second, 9*second, "")
			b.run("chaos-2", "p2", "k", 8*second, 8*second+1, ledger.End)
			b.fault(f)
			return Overlap(b.h)
		}
		frozen := Fault{Kind: "tree-stop", Procs: []string{"p1"}, From: 2 * second, To: 9 * second, Effect: Freezes}
		require.Empty(t, late(frozen).Violations)
		other, early, killed := frozen, frozen, frozen
		other.Procs = []string{"p2"}
		early.From, early.To = 0, second/2
		killed.Effect = Kills
		for _, f := range []Fault{other, early, killed} {
			require.NotEmpty(t, late(f).Violations)
		}
	})
}

func TestFence(t *testing.T) {
	t.Parallel()
	b := good()
	b.fence = 0
	b.run("chaos-9", "p1", "k", 8*second, 9*second, ledger.End)
	requireFails(t, Fence(b.h), "has the fence 1")

	b = good()
	b.fence = 4 // the last holder's: equal is not larger
	b.run("chaos-9", "p1", "k", 8*second, 9*second, ledger.End)
	requireFails(t, Fence(b.h), "has the fence 5")

	b = good()
	b.fence = -1
	b.run("chaos-9", "p1", "other", 8*second, 9*second, ledger.End)
	requireFails(t, Fence(b.h), "without a fencing token")
}

func TestRepeats(t *testing.T) {
	t.Parallel()
	again := func(outcome string, f ...Fault) Result {
		b := good()
		b.h.DaemonOf = func(string) string { return "a" }
		b.push("chaos-9")
		b.run("chaos-9", "p1", "", 10*second, 11*second, outcome)
		b.run("chaos-9", "p1", "", 13*second, 14*second, ledger.End)
		b.h.Faults = append(b.h.Faults, f...)
		return Repeats(b.h)
	}
	requireFails(t, again(ledger.End), "chaos-9 ran again")
	requireFails(t, again(""), "chaos-9 ran again")
	require.Empty(t, again(ledger.Requeue).Violations)
	require.Empty(t, again(ledger.Die).Violations)
	b := good()
	b.run("chaos-8", "p9", "", 10*second, 11*second, ledger.Die)
	b.run("chaos-9", "p9", "", 11*second+1, 11*second+1, "")
	b.run("chaos-9", "p1", "", 12*second, 13*second, ledger.End)
	require.Empty(t, Repeats(b.h).Violations, "it began while its process was dying")
	b.run("chaos-7", "p9", "", 14*second, 14*second, "")
	b.run("chaos-7", "p1", "", 15*second, 16*second, ledger.End)
	requireFails(t, Repeats(b.h), "chaos-7 ran again")
	kill := Fault{Kind: "worker-kill", Procs: []string{"p1"}, From: 12 * second, To: 12 * second, Effect: Kills}
	require.Empty(t, again("", kill).Violations)
	cutOff := Fault{Kind: "partition", Daemon: "a", From: 10 * second, To: 12 * second, Effect: Fences}
	require.Empty(t, again("", cutOff).Violations)
	for name, spoil := range map[string]func(f *Fault){
		"another process":       func(f *Fault) { f.Procs = []string{"p7"} },
		"before the first run":  func(f *Fault) { f.From, f.To = second, 2*second },
		"after the second run":  func(f *Fault) { f.From, f.To = 20*second, 20*second },
		"a fault of other kind": func(f *Fault) { f.Effect = Disturbs | Fails },
		"another daemon":        func(f *Fault) { *f = cutOff; f.Daemon = "b" },
	} {
		f := kill
		spoil(&f)
		require.NotEmpty(t, again("", f).Violations, name)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	failed := func(expect string, f Failed, prepare func(b *book)) Result {
		b := good()
		b.push("chaos-9").Expect = expect
		f.ID = "chaos-9"
		b.h.Failed = append(b.h.Failed, f)
		if prepare != nil {
			prepare(b)
		}
		return Failures(b.h)
	}
	ran := func(b *book) { b.run("chaos-9", "p1", "", 10*second, 11*second, ledger.Fail) }
	kill := func(effect Effect, at time.Duration) func(b *book) {
		return func(b *book) {
			ran(b)
			b.fault(Fault{Kind: "usr1", Procs: []string{"p1"}, From: at, To: at, Effect: effect})
		}
	}
	killed := Failed{Exception: ExpectDeath, Error: "Job was killed", At: 11 * second}
	requireFails(t, failed(ExpectDone, Failed{Exception: "Error", Error: "oops"}, ran), "oops")
	requireFails(t, failed(ExpectPanic, Failed{Exception: "Error"}, ran), "chaos-9")
	requireFails(t, failed(ExpectDone, killed, ran), "Job was killed")
	requireFails(t, failed(ExpectDone, killed, kill(Fails, 30*second)), "Job was killed")
	require.Empty(t, failed(ExpectDone, killed, kill(Fails, 11*second)).Violations)
	require.Empty(t, failed(ExpectUnknown, Failed{Exception: ExpectUnknown}, nil).Violations)

	third := Failed{Exception: ExpectDeath, Error: "worker process died: signal 9; death 3 of 3"}
	deaths := func(own bool, n int) func(b *book) {
		return func(b *book) {
			for i := range n {
				at, proc := time.Duration(20+10*i)*second, string(rune('x'+i))
				outcome := ""
				if own {
					outcome = ledger.Die
				} else {
					b.run("chaos-1", proc, "", at, at+1, ledger.Die)
				}
				b.run("chaos-9", proc, "", at, at+1, outcome)
			}
		}
	}
	require.Empty(t, failed(ExpectDeath, third, deaths(true, 3)).Violations)
	r := failed(ExpectDone, third, deaths(false, 3))
	requireFails(t, r, "died beside others")
	require.Contains(t, r.String(), "1 bystanders")
}

func TestStarvation(t *testing.T) {
	t.Parallel()
	quick := Probe{ID: "chaos-1", Pushed: second, Ran: second + second/10, QuietUntilDone: true}
	slow, never, disturbed := quick, quick, quick
	slow.Ran = 2 * second
	never.Ran = 0
	disturbed.Ran, disturbed.QuietUntilDone = 9*second, false
	starved := func(h *History, probes ...Probe) Result { return Starvation(h, probes, second/2) }
	h := NewHistory()
	require.Empty(t, starved(h, quick, disturbed).Violations)
	requireFails(t, starved(h, quick, slow), "waited 1.000s")
	requireFails(t, starved(h, never), "ran: false")
	h.Faults = []Fault{{Kind: Stall, From: second, To: 2 * second}}
	require.Empty(t, starved(h, slow).Violations)
	h.Faults[0].To = second + second/10
	requireFails(t, starved(h, slow), "waited 1.000s")
	h.Starved = []Span{{second, 2 * second}}
	require.Empty(t, starved(h, slow).Violations, "on an overloaded machine")
	h.Starved = []Span{{2 * second, 9 * second}}
	requireFails(t, starved(h, slow), "waited 1.000s")
	requireFails(t, starved(h, never), "ran: false")
}

func TestOrder(t *testing.T) {
	t.Parallel()
	taken := func(lock string, quiet bool, reserved ...int64) Result {
		b := newBook()
		for i, ms := range reserved {
			id := "chaos-" + string(rune('1'+i))
			p := b.push(id)
			p.Sequence, p.Quiet = i, quiet
			b.h.Add([]ledger.Entry{{What: ledger.Start, At: second, Run: id, ID: id, Lock: lock, Reserved: ms}})
		}
		b.h.Sort()
		return Order(b.h)
	}
	require.Empty(t, taken("", true, 10, 10, 11).Violations)
	requireFails(t, taken("", true, 10, 12, 11), "taken 1 ms before it")
	require.Zero(t, taken("k", true, 12, 11).Looked)
	require.Zero(t, taken("", false, 12, 11).Looked)
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	bounds := []Bound{{Kind: "kill", Recover: second}}
	require.Empty(t, Recovery([]Fault{{Kind: "kill", Recovered: second}}, bounds, nil).Violations)
	requireFails(t, Recovery([]Fault{{Kind: "kill", Recovered: second + 1}}, bounds, nil), "instead of 1.000s")
	requireFails(t, Recovery([]Fault{{Kind: "other", Recovered: -1}}, bounds, nil), "no recovery")
	stall := Fault{Kind: Stall, From: second / 2, To: second, Recovered: -1}
	require.Empty(t, Recovery([]Fault{{Kind: "kill", Recovered: second + 1}, stall}, bounds, nil).Violations)
	stall.From, stall.To = 5*second, 9*second
	requireFails(t, Recovery([]Fault{{Kind: "kill", Recovered: second + 1}, stall}, bounds, nil), "instead of 1.000s")

	h := NewHistory()
	h.Starved = []Span{{second, 9 * second}}
	late := Fault{Kind: "kill", Recovered: 9 * second}
	require.Empty(t, Recovery([]Fault{late}, bounds, h.Waited).Violations, "that time does not count")
	late.Recovered = 9*second + 1
	requireFails(t, Recovery([]Fault{late}, bounds, h.Waited), "instead of 9.000s")

	kill := Fault{Kind: "kill", Daemon: "a", From: 5 * second, To: 5 * second, Recovered: 3 * second}
	mute := Fault{Kind: "mute", Daemon: "a", From: 4 * second, To: 7 * second, Effect: Disturbs}
	require.Empty(t, Recovery([]Fault{mute, kill}, bounds, nil).Violations, "it was still waiting for a reply")
	for what, change := range map[string]func(f *Fault){
		"another daemon": func(f *Fault) { f.Daemon = "b" },
		"over too soon":  func(f *Fault) { f.To = 7*second - 1 },
		"began later":    func(f *Fault) { f.From = 6 * second },
		"no effect":      func(f *Fault) { f.Effect = Kills },
	} {
		other := mute
		change(&other)
		require.Len(t, Recovery([]Fault{other, kill}, bounds, nil).Violations, 1, what)
	}

	table := Table([]Fault{
		{Kind: "kill", Noticed: 1, Recovered: 5},
		{Kind: "kill", Noticed: -1, Recovered: 9},
		{Kind: "kill", Noticed: 3, Recovered: -1},
	}, []string{"kill", "none"})
	require.Equal(t, []Times{
		{Kind: "kill", Fired: 3, Unnoticed: 1, Unrecovered: 1, NoticedMedian: 2, NoticedMax: 3, RecoverMedian: 7, RecoverMax: 9},
		{Kind: "none"},
	}, table)
}

func TestResidueAndVacuity(t *testing.T) {
	t.Parallel()
	requireFails(t, Residue([]string{"process 7"}), "process 7")
	h := good().h
	requireFails(t, Vacuous(h.Faults, []string{"worker-kill"}, 2, 1, 1, nil), "worker-kill happened 1 times")
	requireFails(t, Vacuous(h.Faults, []string{"host-kill"}, 1, 1, 1, nil), "host-kill happened 0 times")
	requireFails(t, Vacuous(h.Faults, nil, 1, 0, 1, nil), "0 jobs were recovered")
	requireFails(t, Vacuous(h.Faults, nil, 1, 1, 1, []Result{{Name: "C2 overlap"}}), "C2 overlap has looked at nothing")
}

// A slice that Redis has lost together with other writes is not the daemon's loss, but only then.
func TestLostSlice(t *testing.T) {
	t.Parallel()
	b := newBook()
	l := &Long{ID: "chaos-7", UUID: "u", Units: 2, Answer: Acknowledged, Tried: second, Answered: second, Status: "running"}
	b.h.Longs[l.ID] = l
	b.h.Add([]ledger.Entry{
		{What: ledger.Start, At: 2 * second, Proc: "p", Run: "r", ID: "u.1"},
		{What: ledger.Unit, At: 3 * second, Proc: "p", Run: "r", ID: "u.1", Long: l.ID},
		{What: ledger.End, At: 4 * second, Proc: "p", Run: "r", ID: "u.1"},
	})
	requireFails(t, LongJobs(b.h), "1 of 2 units were not done")
	b.h.Losses = []Loss{{Kind: "failover", From: 5 * second, To: 6 * second}}
	requireFails(t, LongJobs(b.h), "1 of 2 units were not done")
	b.h.Losses[0].From = 3500 * time.Millisecond
	r := LongJobs(b.h)
	require.Empty(t, r.Violations)
	require.Contains(t, r.String(), "1 lost by redis")
}

// After a freeze, a process may begin a job that has already run elsewhere.
func TestBegunAfterAFreeze(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.push("chaos-1")
	b.run("chaos-1", "other", "", 5*second, 6*second, ledger.End)
	b.run("chaos-1", "frozen", "", 8*second, 9*second, ledger.End)
	requireFails(t, Repeats(b.h), "chaos-1 ran again at 8.000s in frozen without a reason")
	b.fault(Fault{Kind: "host-freeze", Procs: []string{"frozen"}, From: 2 * second, To: 7 * second, Effect: Freezes})
	requireFails(t, Repeats(b.h), "without a reason")
	b.h.Faults[0].To = 8 * second
	require.Empty(t, Repeats(b.h).Violations)
}
