package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// attempt adds one attempt of a job with a retry.
func (b *book) attempt(id, proc string, attempt int, at time.Duration, outcome string) *Run {
	b.run(id, proc, "", at, at+second/10, outcome)
	runs := b.h.byID[id]
	r := runs[len(runs)-1]
	r.Attempt = attempt
	return r
}

// retrying returns a history of a job that fails twice and then passes.
func retrying() *book {
	b := newBook()
	p := b.push("chaos-1")
	p.Fails, p.Attempts, p.Waits = 2, 4, []time.Duration{0, second}
	b.attempt("chaos-1", "p1", 1, 2*second, ledger.Fail)
	b.attempt("chaos-1", "p1", 2, 3*second, ledger.Fail)
	b.attempt("chaos-1", "p2", 3, 5*second, ledger.End)
	b.h.Processed, b.h.FailedStat = 3, 2
	return b
}

// exhausted returns a history of a job that fails each time.
func exhausted() *book {
	b := newBook()
	p := b.push("chaos-1")
	p.Fails, p.Attempts, p.Expect = 4, 4, ExpectError
	for i := range 4 {
		b.attempt("chaos-1", "p1", 1+i, time.Duration(2+i)*second, ledger.Fail)
	}
	b.h.Failed = []Failed{{ID: "chaos-1", Exception: ExpectError, Attempts: 4}}
	b.h.Processed, b.h.FailedStat = 4, 4
	return b
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for _, b := range []*book{retrying(), exhausted()} {
		for _, r := range []Result{Retries(b.h), Repeats(b.h), Conservation(b.h), Failures(b.h)} {
			require.Empty(t, r.Violations, r.Name)
		}
		require.Positive(t, Retries(b.h).Looked)
	}
	for name, c := range map[string]struct {
		spoil func(b *book)
		says  string
	}{
		"a number that is skipped":  {func(b *book) { b.h.byID["chaos-1"][2].Attempt = 4 }, "attempt 4 at 5.000s follows attempt 2"},
		"a number that stays":       {func(b *book) { b.h.byID["chaos-1"][1].Attempt = 1; b.h.byID["chaos-1"][2].Attempt = 2 }, "follows attempt 1"},
		"a wait that is too short":  {func(b *book) { b.h.byID["chaos-1"][2].At = 4 * second }, "was to wait 1.000s"},
		"a run more than it has to": {func(b *book) { b.attempt("chaos-1", "p1", 4, 9*second, ledger.End) }, "ran 4 times"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := retrying()
			c.spoil(b)
			requireFails(t, Retries(b.h), c.says)
		})
	}
	t.Run("a failure for good that comes too early", func(t *testing.T) {
		t.Parallel()
		b := exhausted()
		b.h.byID["chaos-1"] = b.h.byID["chaos-1"][:3]
		requireFails(t, Retries(b.h), "failed for good after 3 runs")
		b = exhausted()
		b.h.Failed[0].Attempts = 3
		requireFails(t, Retries(b.h), "attempt 3")
	})
	t.Run("a failure that was not counted", func(t *testing.T) {
		t.Parallel()
		b := retrying()
		b.h.FailedStat = 1
		requireFails(t, Conservation(b.h), "stat:failed is 1")
		b = retrying()
		b.h.FailedStat = 3
		requireFails(t, Conservation(b.h), "2 to 2 times one ran again")
	})
	t.Run("a good end is not a failure to run again for", func(t *testing.T) {
		t.Parallel()
		b := retrying()
		b.h.byID["chaos-1"][1].Outcome = ledger.End
		requireFails(t, Repeats(b.h), "chaos-1 ran again")
	})
	t.Run("a failure after which it was to succeed is none, either", func(t *testing.T) {
		t.Parallel()
		b := retrying()
		b.h.Pushes["chaos-1"].Fails = 1
		requireFails(t, Repeats(b.h), "chaos-1 ran again")
	})
	t.Run("only what happened to a run excuses another one", func(t *testing.T) {
		t.Parallel()
		again := func(f Fault) Result {
			b := retrying()
			b.attempt("chaos-1", "p1", 4, 9*second, ledger.End)
			b.fault(f)
			return Retries(b.h)
		}
		kill := Fault{Kind: "worker-kill", Procs: []string{"p2"}, From: 6 * second, To: 6 * second, Effect: Kills}
		require.Empty(t, again(kill).Violations)
		other, late, gentle := kill, kill, kill
		other.Procs = []string{"p1"}
		late.From, late.To = 20*second, 20*second
		gentle.Effect = Fails
		for _, f := range []Fault{other, late, gentle} {
			require.NotEmpty(t, again(f).Violations, f)
		}
	})
	t.Run("a process that died with it before it began counts as an attempt", func(t *testing.T) {
		t.Parallel()
		skipped := func(at time.Duration) Result {
			b := retrying()
			b.h.byID["chaos-1"][2].Attempt = 4
			b.fault(Fault{Kind: "worker-kill-taking", Procs: []string{"p7"}, From: at, To: at, Effect: Kills})
			return Retries(b.h)
		}
		require.Empty(t, skipped(4*second).Violations)
		requireFails(t, skipped(second), "follows attempt 2")
		requireFails(t, skipped(6*second), "follows attempt 2")
	})
	t.Run("one that died with it before its first run, too", func(t *testing.T) {
		t.Parallel()
		began := func(at time.Duration) Result {
			b := exhausted()
			b.h.byID["chaos-1"] = b.h.byID["chaos-1"][1:]
			b.h.died["p7"] = at
			return Retries(b.h)
		}
		require.Empty(t, began(2*second).Violations)
		requireFails(t, began(5*second), "its first run, at 3.000s, was attempt 2")
		b := exhausted()
		b.h.byID["chaos-1"] = b.h.byID["chaos-1"][1:3]
		b.h.died["p7"] = 2 * second
		requireFails(t, Retries(b.h), "failed for good after 2 runs")
	})
	t.Run("a count that redis lost while the job was in hand begins anew", func(t *testing.T) {
		t.Parallel()
		anew := func(emptied Span) Result {
			b := retrying()
			b.h.byID["chaos-1"][2].Attempt = 1
			b.h.Emptied = []Span{emptied}
			return Retries(b.h)
		}
		require.Empty(t, anew(Span{4 * second, 4*second + 1}).Violations)
		require.Empty(t, anew(Span{4 * second, 6 * second}).Violations, "its answer came late")
		requireFails(t, anew(Span{2 * second, 3 * second}), "attempt 1 at 5.000s follows attempt 2")
		requireFails(t, anew(Span{5 * second, 6 * second}), "attempt 1 at 5.000s follows attempt 2")
	})
}

func TestDelayed(t *testing.T) {
	t.Parallel()
	later := func(reserved int64, spoil func(b *book)) Result {
		b := newBook()
		p := b.push("chaos-1")
		p.Due, p.DueAt = 5000, 5*second
		b.h.Quiet = []Span{{second, 9 * second}}
		b.h.Add([]ledger.Entry{{What: ledger.Start, At: 5 * second, Run: "r", ID: "chaos-1", Reserved: reserved}})
		if spoil != nil {
			spoil(b)
		}
		return Delayed(b.h, second)
	}
	require.Empty(t, later(5000, nil).Violations)
	require.Empty(t, later(6000, nil).Violations)
	requireFails(t, later(4999, nil), "taken 1 ms before its time")
	requireFails(t, later(6001, nil), "after its time")
	// It never runs before its time; outside of quiet times it may run later.
	noisy := func(b *book) { b.h.Quiet = []Span{{5 * second, 9 * second}, {0, 5 * second}} }
	require.Empty(t, later(8000, noisy).Violations)
	requireFails(t, later(4999, noisy), "before its time")
	requireFails(t, later(4999, func(b *book) {
		b.fault(Fault{Kind: "redis-empty", From: 4 * second, To: 6 * second, Effect: Disturbs | Kills | Freezes})
	}), "before its time")

	gone := func(b *book) { clear(b.h.byID) }
	requireFails(t, later(0, gone), "has not run")
	require.Empty(t, later(0, func(b *book) { gone(b); b.h.Forgotten["chaos-1"] = true }).Violations)
}

// scheduled returns a history of a schedule that ticks each second from 1 to 20, with a job per
// tick.
func scheduled() *book {
	b := newBook()
	b.h.Schedules["chaos-8"] = &Schedule{ID: "chaos-8", Name: "second", Period: second, MaybeFrom: 500, From: 900, To: 20_500, MaybeTo: 20_600}
	for n := 1; n <= 20; n++ {
		b.tick(time.Duration(n)*second + 20*time.Millisecond)
	}
	return b
}

// tick adds the job of a tick.
func (b *book) tick(at time.Duration) *Run {
	b.run("chaos-8", "p1", "", at, at+second/100, ledger.End)
	runs := b.h.byID["chaos-8"]
	for _, r := range runs {
		if r.At == at {
			r.Reserved = at.Milliseconds()
			b.h.Processed++
			return r
		}
	}
	return nil
}

func (b *book) without(from, to time.Duration) {
	keep := b.h.byID["chaos-8"][:0]
	for _, r := range b.h.byID["chaos-8"] {
		if r.At < from || r.At > to {
			keep = append(keep, r)
		}
	}
	b.h.byID["chaos-8"] = keep
}

func TestTicks(t *testing.T) {
	t.Parallel()
	judge := func(spoil func(b *book)) Result {
		b := scheduled()
		spoil(b)
		return Ticks(b.h)
	}
	fine := func(*book) {}
	require.Empty(t, judge(fine).Violations)
	require.Positive(t, judge(fine).Looked)
	b := scheduled()
	require.Empty(t, Conservation(b.h).Violations)
	require.Empty(t, Repeats(b.h).Violations)
	b.h.Processed++
	requireFails(t, Conservation(b.h), "stat:processed")

	outage := Fault{Kind: "redis-away", From: 8 * second, To: 12 * second, Effect: Disturbs}
	lost := func(b *book) { b.without(9*second, 10*second) }
	requireFails(t, judge(lost), "jobs have not run by")
	requireFails(t, judge(func(b *book) { lost(b); b.fault(outage) }), "jobs have not run by")
	requireFails(t, judge(func(b *book) { b.tick(9*second + second/2) }), "jobs have run by")
	requireFails(t, judge(func(b *book) { b.tick(9*second + second/2); b.fault(outage) }), "jobs have run by")
	requireFails(t, judge(func(b *book) { b.without(7*second, 11*second); b.tick(12*second + second/2) }), "jobs have not run by")
	requireFails(t, judge(func(b *book) { b.without(8*second, 9*second); b.tick(7*second + second/2) }), "by 00:00:07")
	t.Run("one that comes later, after others that were in time, has come", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, judge(func(b *book) { lost(b); b.tick(14*second + second/2) }).Violations)
		requireFails(t, judge(func(b *book) { lost(b); b.tick(14*second + second/2); b.tick(18*second + second/2) }), "jobs have run by")
		kill := Fault{Kind: "worker-kill", Procs: []string{"p1"}, From: 18*second + second/40, To: 18*second + second/40, Effect: Kills}
		requireFails(t, judge(func(b *book) {
			b.h.byID["chaos-8"][17].Outcome = ""
			b.fault(kill)
			b.tick(18*second + second/2)
			lost(b)
		}), "jobs have not run by")
	})
	t.Run("those of an outage come when it is over", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, judge(func(b *book) {
			b.without(8*second, 12*second)
			for n := range 4 {
				b.tick(12*second + time.Duration(100+n)*time.Millisecond)
			}
		}).Violations)
	})
	t.Run("one that has died runs again, and none for it", func(t *testing.T) {
		t.Parallel()
		kill := Fault{Kind: "worker-kill", Procs: []string{"p1"}, From: 8*second + second/40, To: 8*second + second/40, Effect: Kills}
		died := func(b *book) { b.h.byID["chaos-8"][7].Outcome = "" }
		require.Empty(t, judge(func(b *book) { died(b); b.tick(8*second + second/2); b.fault(kill) }).Violations)
		requireFails(t, judge(func(b *book) {
			died(b)
			b.fault(kill)
			b.tick(8*second + second/2)
			b.tick(14*second + second/2)
		}), "jobs have run by")
		requireFails(t, judge(func(b *book) { b.fault(kill); b.without(15*second, 16*second) }), "jobs have not run by")
	})
	t.Run("one that has died runs when it is recovered", func(t *testing.T) {
		t.Parallel()
		after := func(recovered time.Duration) func(b *book) {
			return func(b *book) {
				b.h.byID["chaos-8"][7].Outcome = ""
				b.tick(12*second + second/2)
				b.fault(Fault{
					Kind: "start-without", Procs: []string{"p1"}, From: 8*second + second/40, To: 9 * second, Recovered: recovered, Effect: Kills,
				})
			}
		}
		require.Empty(t, judge(after(3*second)).Violations)
		requireFails(t, judge(after(0)), "jobs have run by")
	})
	t.Run("one that has failed has come", func(t *testing.T) {
		t.Parallel()
		failed := func(b *book) {
			lost(b)
			b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-8", Exception: ExpectDeath, Error: "Job was killed", At: 9*second + second/2})
		}
		require.Empty(t, judge(failed).Violations)
		requireFails(t, judge(func(b *book) { failed(b); b.without(15*second, 16*second) }), "jobs have not run by")
		b := scheduled()
		failed(b)
		requireFails(t, Failures(b.h), "schedule second failed")
		b.fault(Fault{Kind: "term", From: 9 * second, To: 10 * second, Effect: Fails})
		require.Empty(t, Failures(b.h).Violations)
	})
	t.Run("what was missed for more than a minute is made up for as the schedule says", func(t *testing.T) {
		t.Parallel()
		// No daemon runs from 10 s to 90 s: the ticks up to 30 s are missed, the later ones are
		// late.
		absent := func(catchUp string, madeUp int) Result {
			b := newBook()
			b.h.Schedules["chaos-8"] = &Schedule{
				ID: "chaos-8", Name: "second", Period: second, CatchUp: catchUp, MaybeFrom: 500, From: 900, To: 100_500, MaybeTo: 100_600,
			}
			b.h.Absences = []Absence{{MaybeFrom: 9_100, From: 9_900, To: 90_100, MaybeTo: 90_200}}
			for n := 1; n <= 100; n++ {
				at := time.Duration(n)*second + 20*time.Millisecond
				switch {
				case n >= 10 && n <= 30:
					if n > 30-madeUp {
						b.tick(90*second + time.Duration(100+n)*time.Millisecond)
					}
				case n < 10 || n > 90:
					b.tick(at)
				default:
					b.tick(90*second + time.Duration(200+n)*time.Millisecond)
				}
			}
			return Ticks(b.h)
		}
		for catchUp, jobs := range map[string]int{"all": 21, "last": 1, "none": 0} {
			require.Empty(t, absent(catchUp, jobs).Violations, catchUp)
			if jobs > 0 {
				requireFails(t, absent(catchUp, jobs-1), "jobs have not run by")
			}
			if jobs < 21 {
				requireFails(t, absent(catchUp, jobs+1), "jobs have run by")
			}
		}
	})
	t.Run("while daemons leave a tick may be seen to, or missed", func(t *testing.T) {
		t.Parallel()
		leaving := func(from int64, last int) Result {
			b := newBook()
			b.h.Schedules["chaos-8"] = &Schedule{ID: "chaos-8", Name: "second", Period: second, CatchUp: "none", MaybeFrom: 500, From: 900, To: 80_500, MaybeTo: 80_600}
			b.h.Absences = []Absence{{MaybeFrom: 7_500, From: from, To: 200_000, MaybeTo: 200_100}}
			for n := 1; n <= last; n++ {
				b.tick(time.Duration(n)*second + 20*time.Millisecond)
			}
			return Ticks(b.h)
		}
		require.Empty(t, leaving(9_500, 9).Violations)
		require.Empty(t, leaving(9_500, 7).Violations)
		requireFails(t, leaving(9_500, 6), "jobs have not run by")
		requireFails(t, leaving(7_900, 9), "jobs have run by")
	})
	t.Run("only Redis may lose some, and only when it does", func(t *testing.T) {
		t.Parallel()
		emptied := func(b *book) {
			b.h.Schedules["chaos-8"].Reborn = []Rebirth{{From: 9500, To: 11_200}}
			b.h.Emptied = []Span{{9*second + second/2, 9*second + second/2 + 1}}
		}
		require.Empty(t, judge(func(b *book) { emptied(b); b.without(10*second, 11*second) }).Violations)
		requireFails(t, judge(func(b *book) { emptied(b); b.without(15*second, 16*second) }), "jobs have not run by")
	})
}

// longBook returns a history of a long job of six units in two slices.
func longBook() *book {
	b := newBook()
	b.h.Longs["chaos-7"] = &Long{ID: "chaos-7", UUID: "u", Units: 6, Answer: Acknowledged, Tried: second, Answered: second, Status: "completed"}
	b.slice("u.1", "p1", 2*second, 0, 1, 2)
	b.slice("u.2", "p2", 4*second, 3, 4, 5)
	b.complete("u.2", 5*second)
	b.h.Processed = 2
	return b
}

// slice adds a slice that does some units, one each tenth of a second.
func (b *book) slice(id, proc string, at time.Duration, units ...int) *Run {
	b.run(id, proc, "", at, at+second, ledger.End)
	runs := b.h.byID[id]
	r := runs[len(runs)-1]
	for i, u := range units {
		b.h.Add([]ledger.Entry{{What: ledger.Unit, At: at + time.Duration(i+1)*second/10, Run: r.Run, ID: id, Long: "chaos-7", Unit: u, State: u}})
	}
	b.h.Sort()
	return r
}

func (b *book) complete(id string, at time.Duration) {
	runs := b.h.byID[id]
	b.h.Add([]ledger.Entry{{What: ledger.Complete, At: at, Run: runs[len(runs)-1].Run, ID: id, Long: "chaos-7"}})
}

func TestLongJobs(t *testing.T) {
	t.Parallel()
	b := longBook()
	for _, r := range []Result{LongJobs(b.h), Repeats(b.h), Conservation(b.h)} {
		require.Empty(t, r.Violations, r.Name)
	}
	require.Positive(t, LongJobs(b.h).Looked)
	for name, c := range map[string]struct {
		spoil func(b *book)
		says  string
	}{
		"a unit that is not done":      {func(b *book) { b.h.Longs["chaos-7"].Units = 7 }, "1 of 7 units were not done"},
		"a unit that is passed over":   {func(b *book) { b.h.byID["u.2"][0].Units[0].Unit = 4 }, "unit 4"},
		"a unit that is done again":    {func(b *book) { b.slice("u.3", "p1", 6*second, 5) }, "1 units were done again from 5 on"},
		"a state that is behind":       {func(b *book) { b.h.byID["u.2"][0].Units[1].State = 3 }, "remembered 3 units"},
		"a run that is not completed":  {func(b *book) { b.h.byID["u.2"][0].Completed = 0 }, "completed 0 times"},
		"a run that never ended":       {func(b *book) { b.h.Longs["chaos-7"].Status = "queued" }, `is "queued"`},
		"a run that goes on":           {func(b *book) { b.slice("u.3", "p1", 6*second, 6) }, "went on at 6.000s"},
		"a run that begins in between": {func(b *book) { b.h.byID["u.1"][0].Units = b.h.byID["u.1"][0].Units[1:] }, "began with unit 1"},
		"a run that was refused":       {func(b *book) { b.h.Longs["chaos-7"].Answer = Refused }, "was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := longBook()
			c.spoil(b)
			requireFails(t, LongJobs(b.h), c.says)
		})
	}
	t.Run("what is interrupted does one unit again, and no more", func(t *testing.T) {
		t.Parallel()
		again := func(f Fault, from int) Result {
			b := newBook()
			b.h.Longs["chaos-7"] = &Long{ID: "chaos-7", UUID: "u", Units: 6, Answer: Acknowledged, Status: "completed"}
			b.slice("u.1", "p1", 2*second, 0, 1, 2).Outcome = ""
			var rest []int
			for u := from; u < 6; u++ {
				rest = append(rest, u)
			}
			b.slice("u.1", "p2", 4*second, rest...)
			b.complete("u.1", 5*second)
			b.fault(f)
			return LongJobs(b.h)
		}
		kill := Fault{Kind: "worker-kill", Procs: []string{"p1"}, From: 3 * second, To: 3 * second, Effect: Kills}
		require.Empty(t, again(kill, 3).Violations)
		require.Empty(t, again(kill, 2).Violations)
		requireFails(t, again(kill, 1), "2 units were done again from 1 on")
		other, early := kill, kill
		other.Procs = []string{"p2"}
		early.From, early.To = 0, second/2
		for _, f := range []Fault{other, early} {
			requireFails(t, again(f, 2), "1 units were done again")
		}
	})
	t.Run("what Redis lost is done again", func(t *testing.T) {
		t.Parallel()
		b := longBook()
		b.slice("u.2", "p2", 6*second, 3, 4, 5)
		b.complete("u.2", 7*second)
		require.NotEmpty(t, LongJobs(b.h).Violations)
		b.h.Losses = []Loss{{Kind: "failover", From: 4 * second, To: 5*second + second/2, Proven: true}}
		require.Empty(t, LongJobs(b.h).Violations)
		b.h.Losses[0].From, b.h.Losses[0].To = 20*second, 21*second
		require.NotEmpty(t, LongJobs(b.h).Violations)
	})
	t.Run("a slice that runs again for no reason", func(t *testing.T) {
		t.Parallel()
		b := longBook()
		b.slice("u.2", "p2", 6*second)
		requireFails(t, Repeats(b.h), "u.2 ran again")
	})
	t.Run("a run has a slice somewhere until it is completed", func(t *testing.T) {
		t.Parallel()
		b := longBook()
		look := func(at time.Duration, place string) []Violation {
			s := Snapshot{From: at, To: at, Places: map[string]int{}, Failed: map[string]bool{}, Taken: map[string]bool{}}
			if place != "" {
				s.Places[place]++
			}
			return Instant(b.h, s, nil, 0)
		}
		require.Empty(t, look(3*second, "u.2"))
		require.Empty(t, look(6*second, ""))
		require.Empty(t, look(second/2, ""), "it is not pushed yet")
		require.NotEmpty(t, look(3*second, ""))
		require.NotEmpty(t, look(3*second, "other.2"))
		b.h.Forgotten["u"] = true
		require.Empty(t, look(3*second, ""))
	})
	t.Run("a slice that was counted twice", func(t *testing.T) {
		t.Parallel()
		b := longBook()
		b.h.Processed++
		requireFails(t, Conservation(b.h), "stat:processed")
	})
}
