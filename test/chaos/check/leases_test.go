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
