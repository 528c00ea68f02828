package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/chaos/ledger"
)

// limited adds a run that counts under limit l:a from at to end, and was taken 10 ms before.
func (b *book) limited(id, proc string, at, end time.Duration) {
	b.push(id)
	b.run(id, proc, "", at, end, ledger.End)
	r := b.h.byID[id][0]
	r.Limits = []string{"l:a"}
	r.Reserved = (at - 10*ms + b.h.Epoch).Milliseconds()
}

func TestLimits(t *testing.T) {
	t.Parallel()
	two := map[string]Limit{"l": {Concurrency: 2}}
	rate := map[string]Limit{"l": {Concurrency: 9, Rate: 1, Burst: 2}}
	three := func() *book {
		b := newBook()
		b.limited("chaos-1", "p1", second, 3*second)
		b.limited("chaos-2", "p2", second, 2*second)
		b.limited("chaos-3", "p1", 2*second-1, 3*second)
		return b
	}
	requireFails(t, Limits(three().h, two), "l:a: 3 jobs at once")
	b := three()
	b.h.byID["chaos-2"][0].Last--
	require.Empty(t, Limits(b.h, two).Violations)
	require.Contains(t, Limits(b.h, two).String(), "2 starts that made a limit full")
	b = three()
	b.fault(Fault{Procs: []string{"p2"}, From: second, To: 2 * second, Effect: Freezes})
	require.Empty(t, Limits(b.h, two).Violations, "it was frozen")
	b = three()
	b.h.Emptied = []Span{{second, second + ms}}
	require.Empty(t, Limits(b.h, two).Violations, "Redis lost it")

	// At 1 s there are two, and until 1.99 s 1.5 more come back.
	requireFails(t, Limits(func() *History {
		b := three()
		b.limited("chaos-4", "p3", 2*second-1, 3*second)
		return b.h
	}(), rate), "l:a: 4 jobs began from 0.990s to 2.000s")
	require.Empty(t, Limits(three().h, rate).Violations)
}
