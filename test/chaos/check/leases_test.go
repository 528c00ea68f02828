package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeases(t *testing.T) {
	t.Parallel()
	leaseOf := func(string) time.Duration { return 7 * time.Second }
	looks := func(all ...LeaseLook) Result {
		l := NewLeases()
		for _, s := range all {
			l.Look(s, leaseOf)
		}
		return l.Result
	}
	at := func(now, until int64) LeaseLook { return LeaseLook{Now: now, Until: map[string]int64{"p": until}} }
	good := looks(at(1000, 8000), at(1500, 8000), at(2000, 8900), at(3000, 0), LeaseLook{Now: 4000}, at(5000, 12_000))
	require.Empty(t, good.Violations)
	require.Equal(t, 4, good.Looked)
	requireFails(t, looks(at(1000, 8000), at(1500, 4500)), "was cut by 3500 ms, to 3000 ms")
	requireFails(t, looks(at(1000, 9000)), "its own is 7s")
	lost := at(1500, 4500)
	lost.Epoch = 1
	require.Empty(t, looks(at(1000, 8000), lost).Violations, "what redis lost")

	unlisted := at(1000, 8000)
	unlisted.Unlisted = []string{"web-1:4:mail"}
	require.Len(t, looks(unlisted, unlisted).Violations, 1, "told once")
	requireFails(t, looks(unlisted), "web-1:4:mail works on")
}

// TestBoundOfLease checks that recovery by lease is bounded by the lease of the process's own
// daemon, and after an outage by the lease that the surviving masters grant.
func TestBoundOfLease(t *testing.T) {
	t.Parallel()
	bounds := []Bound{
		{Kind: "gone", Recover: second, Leases: 1, Longest: 7 * second},
		{Kind: "silent", Recover: second, Leases: 2.0 / 7, Longest: 7 * second},
	}
	gone := Fault{Kind: "gone", Daemon: "a", From: 10 * second, To: 10 * second, Recovered: 4 * second, Lease: 3 * second}
	require.Empty(t, Recovery([]Fault{gone}, bounds, nil).Violations)
	gone.Recovered++
	requireFails(t, Recovery([]Fault{gone}, bounds, nil), "instead of 4.000s")
	gone.Lease = 7 * second
	require.Empty(t, Recovery([]Fault{gone}, bounds, nil).Violations)

	gone.Lease, gone.Recovered = 3*second, 6*second
	outage := Fault{Kind: "away", From: 6 * second, To: 9 * second, Effect: Disturbs}
	require.Empty(t, Recovery([]Fault{outage, gone}, bounds, nil).Violations)
	outage.To = 7 * second
	requireFails(t, Recovery([]Fault{outage, gone}, bounds, nil), "instead of 5.000s")
	outage.To, outage.Daemon = 9*second, "b"
	requireFails(t, Recovery([]Fault{outage, gone}, bounds, nil), "instead of 4.000s")

	silent := Fault{Kind: "silent", From: 10 * second, To: 10 * second, Recovered: 3 * second, Lease: 7 * second}
	require.Empty(t, Recovery([]Fault{silent}, bounds, nil).Violations)
	silent.Recovered++
	requireFails(t, Recovery([]Fault{silent}, bounds, nil), "instead of 3.000s")
}
