package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/chaos/ledger"
)

func TestLosses(t *testing.T) {
	t.Parallel()
	loss := Loss{Kind: "kill", From: 5 * second, To: 6 * second, Proven: true}

	t.Run("what Redis has lost is excused, and what it has not is not", func(t *testing.T) {
		t.Parallel()
		for pushed, excused := range map[time.Duration]bool{4 * second: false, 5*second + 1: true, 7 * second: false} {
			b := good()
			p := b.push("chaos-9")
			p.Tried, p.Answered = pushed, pushed
			requireFails(t, Conservation(b.h), "chaos-9")
			b.h.Losses = []Loss{loss}
			r := Conservation(b.h)
			if excused {
				require.Empty(t, r.Violations)
				require.Contains(t, r.String(), "1 lost by redis")
			} else {
				requireFails(t, r, "chaos-9")
			}
		}
	})

	t.Run("a job may run again whose end was lost", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.push("chaos-9")
		b.run("chaos-9", "p1", "", 4*second, 5*second+second/2, ledger.End)
		b.run("chaos-9", "p1", "", 12*second, 13*second, ledger.End)
		requireFails(t, Repeats(b.h), "chaos-9")
		b.h.Losses = []Loss{loss}
		require.Empty(t, Repeats(b.h).Violations)
		b.h.Losses[0].From, b.h.Losses[0].To = 10*second, 11*second
		requireFails(t, Repeats(b.h), "chaos-9")
		b.h.Losses = []Loss{{From: 5*second - 200*time.Millisecond, To: 5*second - 100*time.Millisecond}}
		requireFails(t, Repeats(b.h), "chaos-9")
	})

	t.Run("an end that was kept while Redis was away may be lost when it comes back", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.push("chaos-9")
		b.run("chaos-9", "p1", "", 4*second, 5*second, ledger.End)
		b.run("chaos-9", "p1", "", 18*second, 19*second, ledger.End)
		b.h.Losses = []Loss{{Kind: "kill", From: 11 * second, To: 12 * second, Proven: true}}
		requireFails(t, Repeats(b.h), "chaos-9")
		b.h.Faults = append(b.h.Faults, Fault{Kind: "redis-away", From: 4 * second, To: 10 * second, Effect: Disturbs})
		require.Empty(t, Repeats(b.h).Violations)
		b.h.Losses[0].From, b.h.Losses[0].To = 14*second, 15*second
		requireFails(t, Repeats(b.h), "chaos-9")
	})

	t.Run("two may hold a lock that was lost", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.push("chaos-8")
		b.push("chaos-9")
		b.run("chaos-8", "p1", "z", 8*second, 10*second, ledger.End)
		b.run("chaos-9", "p2", "z", 9*second, 11*second, ledger.End)
		requireFails(t, Overlap(b.h), "chaos-9")
		b.h.Emptied = []Span{{9 * second, 9*second + 1}}
		require.Empty(t, Overlap(b.h).Violations)
		b.h.Emptied = []Span{{12 * second, 12*second + 1}}
		requireFails(t, Overlap(b.h), "chaos-9")
	})

	t.Run("totals may be off by what was lost, and no more", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.h.Processed--
		requireFails(t, Conservation(b.h), "stat:processed")
		b.h.Losses = []Loss{{From: 7*second - 1, To: 7*second + 1}} // the end of chaos-4
		require.Empty(t, Conservation(b.h).Violations)
		b.h.Processed--
		requireFails(t, Conservation(b.h), "stat:processed")
	})

	t.Run("what an emptied Redis held is forgotten", func(t *testing.T) {
		t.Parallel()
		b := good()
		b.push("chaos-9")
		b.h.Emptied = []Span{{9 * second, 9*second + 1}}
		requireFails(t, Conservation(b.h), "chaos-9")
		b.h.Forgotten["chaos-9"] = true
		require.Empty(t, Conservation(b.h).Violations)
	})
}

// twice returns a history of a payload that was pushed at 2 s and at 4 s.
func twice(unique, duplicate bool) *book {
	b := good()
	p := b.push("chaos-9")
	p.Tried, p.Answered, p.Unique = 2*second, 2*second, unique
	p.More = []Try{{Answer: Acknowledged, Tried: 4 * second, Answered: 4 * second, Duplicate: duplicate}}
	return b
}

func TestCopies(t *testing.T) {
	t.Parallel()

	t.Run("each copy runs, and once", func(t *testing.T) {
		t.Parallel()
		b := twice(false, false)
		b.run("chaos-9", "p1", "", 2*second, 3*second, ledger.End)
		b.h.Processed++
		requireFails(t, Conservation(b.h), "1 copies of chaos-9")
		b.run("chaos-9", "p1", "", 5*second, 6*second, ledger.End)
		b.h.Processed++
		require.Empty(t, Conservation(b.h).Violations)
		require.Empty(t, Repeats(b.h).Violations)
		b.run("chaos-9", "p1", "", 7*second, 8*second, ledger.End)
		requireFails(t, Repeats(b.h), "chaos-9")
	})

	t.Run("a copy that has failed was counted, too", func(t *testing.T) {
		t.Parallel()
		b := twice(false, false)
		b.run("chaos-9", "p1", "", 2*second, 3*second, ledger.End)
		b.run("chaos-9", "p1", "", 5*second, 6*second, ledger.Fail)
		b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-9", Exception: ExpectDeath})
		b.h.Processed += 2
		b.h.FailedStat++
		require.Empty(t, Conservation(b.h).Violations)
		b.h.Processed++
		requireFails(t, Conservation(b.h), "stat:processed")
	})

	t.Run("a duplicate is one of a job that still runs", func(t *testing.T) {
		t.Parallel()
		b := twice(true, true)
		b.run("chaos-9", "p1", "", 2*second, 3*second, ledger.End)
		b.h.Processed++
		requireFails(t, Conservation(b.h), "1 copies of chaos-9")
		b = twice(true, true)
		b.run("chaos-9", "p1", "", 5*second, 6*second, ledger.End)
		b.h.Processed++
		require.Empty(t, Conservation(b.h).Violations)
		b.run("chaos-9", "p1", "", 7*second, 8*second, ledger.End)
		requireFails(t, Repeats(b.h), "chaos-9")
	})

	t.Run("a copy more than was pushed is seen at once", func(t *testing.T) {
		t.Parallel()
		b := twice(false, false)
		s := Snapshot{From: 5 * second, To: 5 * second, Places: map[string]int{"chaos-9": 2}}
		require.Empty(t, Instant(b.h, s, nil, 0))
		s.Places["chaos-9"]++
		require.NotEmpty(t, Instant(b.h, s, nil, 0))
		s = Snapshot{Unique: []string{"a unique queue holds twice: x"}}
		require.NotEmpty(t, Instant(b.h, s, nil, 0))
	})
}

// A job that has lost its lock runs again, and only then for a reason; it never fails for that.
func TestLocksLost(t *testing.T) {
	t.Parallel()
	lost := func() *book {
		b := good()
		b.push("chaos-9")
		b.run("chaos-9", "p1", "k", 10*second, 12*second, ledger.Lost)
		b.run("chaos-9", "p2", "k", 14*second, 15*second, ledger.End)
		return b
	}
	b := lost()
	requireFails(t, Repeats(b.h), "chaos-9")
	b.h.Starved = []Span{{11 * second, 12 * second}}
	require.Empty(t, Repeats(b.h).Violations)
	b = lost()
	b.fault(Fault{Kind: "redis-away", From: 11 * second, To: 14 * second, Effect: Disturbs})
	require.Empty(t, Repeats(b.h).Violations)
	b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-9", Exception: "Resqued::LockLost", Error: "resqued: job lock lost: no heartbeat for 2s", At: 12 * second})
	requireFails(t, Failures(b.h), "chaos-9")

	b = good()
	b.push("chaos-9")
	b.run("chaos-9", "p1", "k", 10*second, 12*second, ledger.End)
	b.run("chaos-9", "p2", "k", 14*second, 15*second, ledger.End)
	b.fault(Fault{Kind: "redis-away", From: 11 * second, To: 14 * second, Effect: Disturbs})
	requireFails(t, Repeats(b.h), "chaos-9")
}

// A process ends for a job that USR1 has killed and that does not stop: jobs begun since then
// run again, jobs in hand at the signal do not.
func TestBesideAKilledJob(t *testing.T) {
	t.Parallel()
	again := func(f Fault, ended time.Duration) Result {
		b := good()
		b.push("chaos-9")
		b.run("chaos-9", "p2", "", 11*second, 11*second, "")
		b.run("chaos-9", "p1", "", 15*second, 16*second, ledger.End)
		b.h.Killed = map[string]time.Duration{"p2": ended}
		b.fault(f)
		return Repeats(b.h)
	}
	usr1 := Fault{Kind: "usr1", Procs: []string{"p2"}, From: 10 * second, To: 12 * second, Effect: Fails}
	crash := Fault{
		Kind: "usr1-crash", Procs: []string{"p1"}, From: 10*second + second/2, To: 10*second + second/2, Effect: Kills,
		Aborted: &Aborted{Procs: []string{"p1", "p2"}, From: 10 * second, To: 12 * second},
	}
	for _, f := range []Fault{usr1, crash} {
		require.Empty(t, again(f, 14*second).Violations, f.Kind)
		requireFails(t, again(f, 17*second), "chaos-9 ran again")
	}
	usr1.From, crash.Aborted.From = 11*second+1, 11*second+1
	for _, f := range []Fault{usr1, crash} {
		requireFails(t, again(f, 14*second), "chaos-9 ran again")
	}
	usr1.From, usr1.Procs = 10*second, []string{"p1"}
	requireFails(t, again(usr1, 14*second), "chaos-9 ran again")
}

func TestKilledWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	b := good()
	b.push("chaos-9")
	b.run("chaos-9", "p1", "k", 10*second, 12*second, ledger.End)
	b.run("chaos-9", "p2", "k", 14*second, 15*second, ledger.End)
	b.h.Killed = map[string]time.Duration{"p1": 13 * second}
	requireFails(t, Repeats(b.h), "chaos-9")
	b.h.Faults = append(b.h.Faults, Fault{Kind: "redis-away", From: 11 * second, To: 14 * second, Effect: Disturbs})
	require.Empty(t, Repeats(b.h).Violations)
	b.h.Killed = map[string]time.Duration{"p1": 15 * second}
	requireFails(t, Repeats(b.h), "chaos-9")
}

func TestSilent(t *testing.T) {
	t.Parallel()
	b := good()
	b.push("chaos-9")
	b.run("chaos-9", "p1", "k", 10*second, 12*second, ledger.End)
	b.run("chaos-9", "p2", "k", 14*second, 15*second, ledger.End)
	b.h.Silent = map[string]time.Duration{"p1": 13 * second}
	requireFails(t, Repeats(b.h), "chaos-9")
	b.h.Starved = []Span{{11 * second, 12 * second}}
	require.Empty(t, Repeats(b.h).Violations)
	b.h.Silent = map[string]time.Duration{"p1": 15 * second}
	requireFails(t, Repeats(b.h), "chaos-9")
}
