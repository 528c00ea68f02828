package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// twoStores returns the history of one of two stores: daemons a and b begin a job each every half
// second, for 20 seconds.
func twoStores() *book {
	b := newBook()
	b.h.Daemons = []string{"a", "b"}
	b.h.DaemonOf = func(proc string) string {
		return map[string]string{"pa": "a", "pb": "b"}[proc]
	}
	for n := range 40 {
		for _, proc := range []string{"pa", "pb"} {
			id := fmt.Sprintf("chaos-%d-%s", n, proc)
			b.push(id)
			at := time.Duration(n) * second / 2
			b.run(id, proc, "", at, at+second/10, ledger.End)
		}
	}
	return b
}

// idle removes the runs of a process between two instants; of all if proc is empty.
func (b *book) idle(proc string, from, to time.Duration) *History {
	var left []*Run
	for _, r := range b.h.Runs {
		if r.At <= from || r.At >= to || proc != "" && r.Proc != proc {
			left = append(left, r)
		}
	}
	b.h.Runs = left
	return b.h
}

func TestHome(t *testing.T) {
	t.Parallel()
	b := twoStores()
	r := Home(b.h)
	require.Empty(t, r.Violations)
	require.Equal(t, 80, r.Looked)
	b.push("chaos-7")
	b.run("chaos-7", "other", "", second, second, ledger.End)
	requireFails(t, Home(b.h), "chaos-7 of queue  ran in other, which is no process of this store")
	b = twoStores()
	b.run("chaos-8", "pa", "", second, second, ledger.End)
	requireFails(t, Home(b.h), "chaos-8 of queue  ran, which was not pushed to this store")
}

func TestUnstopped(t *testing.T) {
	t.Parallel()
	away := func(store string, from, to int) Fault {
		return Fault{Kind: "redis-away", Store: store, From: time.Duration(from) * second, To: time.Duration(to) * second, Recovered: second}
	}
	faults := []Fault{away("bulk", 5, 12)}
	judge := func(h *History, faults ...Fault) Result { return Unstopped(h, "main", faults, 2*second) }
	r := judge(twoStores().h, faults...)
	require.Empty(t, r.Violations)
	require.Equal(t, 1, r.Looked)
	require.Contains(t, r.String(), "no job began for 0.500s at most")

	requireFails(t, judge(twoStores().idle("", 6*second, 9*second), faults...), "no job began for 3.000s from 6.000s on, while another store was broken")
	requireFails(t, judge(twoStores().idle("", 9*second, 20*second), faults...), "from 9.000s on")
	requireFails(t, judge(twoStores().idle("pb", 5*second, 12*second), faults...), "daemon b began no job for 7.000s")
	require.Empty(t, judge(twoStores().idle("pb", 5*second, 9*second), away("bulk", 5, 9)).Violations, "too short to tell")

	// What hits this store, or all, is no business of this check, nor the time until it works again.
	gap := twoStores().idle("", 6*second, 9*second)
	for _, f := range []Fault{away("main", 5, 9), away("", 6, 9), {Kind: Stall, From: 6 * second, To: 9 * second}} {
		require.Empty(t, judge(gap, f).Violations)
		require.Empty(t, judge(gap, f, faults[0]).Violations, "%v", f)
	}
	require.Zero(t, judge(gap, away("main", 4, 11), away("bulk", 5, 12)).Looked)
	require.Equal(t, 1, judge(gap, away("main", 1, 2), away("bulk", 10, 12)).Looked)
	// Nor what the load of the machine explains.
	gap.Starved = []Span{{From: 6 * second, To: 8 * second}}
	require.Empty(t, judge(gap, faults...).Violations)
}

// A fault of one store delays the recovery from one of another in no way.
func TestFaultsOfStoresMeet(t *testing.T) {
	t.Parallel()
	bound := []Bound{{Kind: "hup", Recover: second}}
	before := Fault{Kind: "net-partition", Store: "bulk", From: second, To: 20 * second, Effect: Disturbs, Recovered: 0}
	after := Fault{Kind: "hup", From: 3 * second, To: 3 * second, Recovered: 5 * second}
	require.Empty(t, Recovery([]Fault{before, after}, bound, nil).Violations, "one that hits all stores waits for both")
	after.Store = "main"
	requireFails(t, Recovery([]Fault{before, after}, bound, nil), "recovered after 5.000s")
	after.Store = "bulk"
	require.Empty(t, Recovery([]Fault{before, after}, bound, nil).Violations)
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

// What a process begins when it is not frozen any more may have run elsewhere.
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
