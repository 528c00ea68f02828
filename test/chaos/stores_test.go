package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/test/chaos/check"
	"github.com/resqued/resqued/test/chaos/ledger"
)

// With several stores each has queues, job numbers and schedules of its own.
func TestStoresApart(t *testing.T) {
	t.Parallel()
	one := newHarness(options{}).stores
	require.Len(t, one, 1)
	require.Empty(t, one[0].name)
	require.Equal(t, "high", one[0].queue(highQueue))
	h := newHarness(options{stores: 2})
	main, bulk := h.stores[0], h.stores[1]
	require.Equal(t, []string{"main_high", "bulk_high"}, []string{main.queue(highQueue), bulk.queue(highQueue)})
	require.NotEqual(t, main.scheduleID(1), bulk.scheduleID(1))
	require.Contains(t, h.scheduleConfig(), "bulk_second: {")
	require.Contains(t, h.scheduleConfig(), "queue: main_ticks")

	// The ledger says by its queue to which store a run belongs.
	require.Same(t, bulk, h.homeOf(ledger.Entry{What: ledger.Start, Run: "r", Queue: "bulk_low"}))
	require.Same(t, bulk, h.homeOf(ledger.Entry{What: ledger.End, Run: "r"}))
	require.Same(t, main, h.homeOf(ledger.Entry{What: ledger.Start, Run: "s", Queue: "main_low"}))
	require.Same(t, main, h.homeOf(ledger.Entry{What: ledger.Start, Run: "t"}), "of a version that does not say it")
}

// A fault hits all stores, or one; what it hits follows from the seed.
func TestAim(t *testing.T) {
	t.Parallel()
	h := newHarness(options{stores: 2})
	c := h.stores[0]
	aimed := map[string]map[string]int{}
	o := options{stores: 2}
	for _, k := range o.known() {
		aimed[k.name] = map[string]int{}
		for seed := range uint64(100) {
			s, only := c.aim(k, rand.New(rand.NewPCG(seed, 2)))
			again, same := c.aim(k, rand.New(rand.NewPCG(seed, 2)))
			require.Same(t, s, again)
			require.Equal(t, only, same)
			hit := h.hitBy(&check.Fault{Store: only})
			require.Contains(t, hit, s)
			require.Equal(t, only == "", len(hit) == 2)
			aimed[k.name][only]++
		}
	}
	require.Equal(t, map[string]int{"": 100}, aimed["tree-kill"])
	require.Len(t, aimed["term"], 3)
	require.Len(t, aimed["redis-away"], 2)
	require.NotContains(t, aimed["redis-away"], "")
	_, only := newHarness(options{}).stores[0].aim(kind{name: "redis-away"}, rand.New(rand.NewPCG(1, 2)))
	require.Empty(t, only)
}
