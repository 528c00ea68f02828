package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/chaos/ledger"
)

const ms = time.Millisecond

// aborted is a history in which process p1 got USR1 at 5 s and died at 5.2 s. It had chaos-1 in
// hand, and took chaos-2 after killing that.
func aborted() *book {
	b := newBook()
	b.push("chaos-1")
	b.run("chaos-1", "p1", "", 4*second, 5*second+30*ms, ledger.Fail)
	b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-1", Exception: ExpectDeath, Error: "Job was killed", At: 5*second + 40*ms})
	b.push("chaos-2")
	b.taken("chaos-2", 5*second+60*ms)
	b.fault(Fault{
		Kind: "usr1-crash", Procs: []string{"p1"}, From: 5*second + 200*ms, To: 5*second + 200*ms, Effect: Kills,
		Aborted: &Aborted{Procs: []string{"p1", "p3"}, Crashed: "p1", At: 5*second + 200*ms, From: 5 * second, To: 7 * second},
	})
	return b
}

// taken adds a run in p1 that the end of the process cut off.
func (b *book) taken(id string, at time.Duration) {
	b.run(id, "p1", "", at, at, "")
	r := b.h.byID[id][0]
	r.Reserved = (at - 5*ms + b.h.Epoch).Milliseconds()
}

func TestAborts(t *testing.T) {
	t.Parallel()
	b := aborted()
	b.run("chaos-2", "p2", "", 6*second, 7*second, ledger.End)
	for _, r := range []Result{Aborts(b.h), Repeats(b.h), Failures(b.h)} {
		require.Empty(t, r.Violations, r.Name)
	}
	require.Contains(t, Aborts(b.h).String(), "1 jobs in hand at USR1, 1 taken after it")

	b = aborted()
	b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-2", Exception: ExpectDeath, Error: "Job was killed", At: 5*second + 300*ms})
	requireFails(t, Aborts(b.h), "chaos-2 began at 5.060s in p1, after USR1")
	b.h.Failed[1].Error = "worker process died: signal SIGKILL; death 3 of 3"
	require.Empty(t, Aborts(b.h).Violations, "it has failed for another reason")

	b = aborted()
	b.run("chaos-1", "p2", "", 6*second, 7*second, ledger.End)
	requireFails(t, Aborts(b.h), "chaos-1 was in hand in p1")

	t.Run("what is close to the signal is not judged", func(t *testing.T) {
		t.Parallel()
		b := aborted()
		b.push("chaos-3")
		b.taken("chaos-3", 5*second+15*ms) // before the first was killed
		b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-3", Exception: ExpectDeath, Error: "Job was killed", At: 5*second + 300*ms})
		require.Empty(t, Aborts(b.h).Violations)
	})
	t.Run("USR1 explains failures in all processes, and repeats in none", func(t *testing.T) {
		t.Parallel()
		b := aborted()
		b.push("chaos-4")
		b.run("chaos-4", "p3", "", 4*second, 5*second, ledger.Fail)
		b.h.Failed = append(b.h.Failed, Failed{ID: "chaos-4", Exception: ExpectDeath, Error: "Job was killed", At: 5 * second})
		require.Empty(t, Failures(b.h).Violations)
		b.run("chaos-4", "p2", "", 6*second, 7*second, ledger.End)
		requireFails(t, Repeats(b.h), "chaos-4 ran again")
	})
}
