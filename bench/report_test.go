package main

import (
	"slices"
	"strings"
	"testing"
)

func TestRatioIsWithinRounds(t *testing.T) {
	t.Parallel()
	// The machine is twice as fast in the second round, for both peers.
	r := &report{Results: []*result{
		{Scenario: "s", Peer: "a", Round: 1, Rate: 30},
		{Scenario: "s", Peer: "b", Round: 1, Rate: 10},
		{Scenario: "s", Peer: "a", Round: 2, Rate: 60},
		{Scenario: "s", Peer: "b", Round: 2, Rate: 20},
		{Scenario: "s", Peer: "a", Round: 3, Rate: 1000},
	}}
	if got := r.ratio("s", "a", "s", "b", rate); got != (spread{3, 3, 3}) {
		t.Errorf("ratio %v", got)
	}
}

// TestTargetsOverSeveralPeers checks that the best of River is unknown if only its defaults
// were measured.
func TestTargetsOverSeveralPeers(t *testing.T) {
	t.Parallel()
	r := &report{Results: []*result{
		{Scenario: "noop-50", Peer: "resqued", Round: 1, Rate: 60}, {Scenario: "noop-50", Peer: "river", Round: 1, Rate: 2},
	}}
	var b strings.Builder
	if r.targets(&b); strings.Contains(b.String(), "River") {
		t.Error(b.String())
	}
	r.Results = append(r.Results, &result{Scenario: "noop-50", Peer: "river-best", Round: 1, Rate: 10})
	b.Reset()
	if r.targets(&b); !strings.Contains(b.String(), "over River's best | ≥ 5.00 × | 6.00 × | passes") {
		t.Error(b.String())
	}
}

func TestHuman(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "–", 0.123: "0.12", 12.34: "12.3", 123.4: "123", 1234: "1,230", 98765: "98,800", 1_234_567: "1.23 M",
	} {
		if got := human(v); got != want {
			t.Errorf("human(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	values := []float64{4, 1, 3, 2}
	for share, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4} {
		if got := quantile(values, share); got != want {
			t.Errorf("quantile %v = %v, want %v", share, got, want)
		}
	}
}

// TestQueueOf checks that every job is in a queue of its scenario; otherwise a drain would
// never end.
func TestQueueOf(t *testing.T) {
	t.Parallel()
	for _, s := range []scenario{{Queues: 1}, {Queues: 10, LastOnly: true}, {Queues: 1000}} {
		names := s.queueNames()
		if len(names) != s.Queues {
			t.Fatalf("%d queues of %d", len(names), s.Queues)
		}
		if s.LastOnly && s.queueOf(0) != names[len(names)-1] || !s.LastOnly && s.queueOf(s.Queues-1) != names[s.Queues-1] {
			t.Errorf("jobs are in %s", s.queueOf(0))
		}
		for _, n := range []int{1, 7, 1500} {
			there := make([]int, s.Queues)
			for j := range n {
				there[slices.Index(names, s.queueOf(j))]++
			}
			for i := range there {
				if s.inQueue(i, n) != there[i] {
					t.Errorf("%d of %d jobs are in queue %d, not %d", there[i], n, i, s.inQueue(i, n))
				}
			}
		}
	}
}
