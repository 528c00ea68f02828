package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/test/chaos/check"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	a, b, other := newPlan(7, 0, 0), newPlan(7, 0, 0), newPlan(8, 0, 0)
	ids := map[string]bool{}
	expected := map[string]int{}
	locked, large, same, retries, later := 0, 0, 0, 0, 0
	const n = 6_000
	for range n {
		j := a.next()
		require.Equal(t, j, b.next(), "the same seed plans the same jobs")
		// Payloads that may hold nothing else contain only a number.
		if other.next().payload == j.payload && !strings.Contains(j.payload, `"class":"Later"`) {
			same++
		}
		require.False(t, ids[j.id], "%s comes twice", j.id)
		ids[j.id] = true
		expected[j.expect]++
		if j.retry {
			retries++
			require.Contains(t, j.payload, fmt.Sprintf(`"fails":%d`, j.fails))
		}
		if j.later > 5*time.Second {
			later++
		}
		if j.queue == lockedQueue || j.queue == uniqueQueue {
			locked++
		}
		if len(j.payload) > 500_000 {
			large++
		}
		require.LessOrEqual(t, len(j.payload), 1_001_000)
		require.Equal(t, j.id, idPattern.FindString(j.payload), "the id is the first that is found")
		_, err := wire.Parse([]byte(j.payload), 0)
		require.Equal(t, j.raw, err != nil, "%.200s: %v", j.payload, err)
	}
	require.Zero(t, same, "another seed plans other jobs")
	require.InDelta(t, 0.35*n, locked, 0.03*n)
	require.Positive(t, large)
	require.InDelta(t, 0.04*n, retries, 0.01*n)
	require.InDelta(t, 0.02*n, later, 0.01*n)
	for _, expect := range []string{
		check.ExpectDone, check.ExpectPanic, check.ExpectError, check.ExpectUnknown, check.ExpectInvalid, check.ExpectDeath,
	} {
		require.Positive(t, expected[expect], expect)
	}
}

// TestSlow checks that a command of ten seconds comes every ten seconds, from all producers
// together, and that the first one comes soon.
func TestSlow(t *testing.T) {
	t.Parallel()
	const rate, slow = 60, 10
	for producer := range producers {
		p := newPlan(7, producer, slow*rate)
		var at []int
		for n := range 3 * slow * rate {
			if strings.Contains(p.next().payload, `"class":"Slow"`) {
				at = append(at, n+1)
			}
		}
		first := slow*rate/8 + producer*slow*rate/producers
		require.Equal(t, []int{first, first + slow*rate, first + 2*slow*rate}, at)
	}
}

func TestDecks(t *testing.T) {
	t.Parallel()
	names := kindNames()
	require.Len(t, names, len(allKinds()))
	o := options{only: []string{"usr1", "net-down"}, lease: defaultLease}
	require.Len(t, o.kinds(), 2)
	o.only = []string{"!usr1", "!net-down"}
	require.Len(t, o.kinds(), len(names)-2)
	o.only = nil
	kinds := o.kinds()
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	require.Equal(t, names, kindNames(), "a deck that is shuffled leaves the list as it is")
}

// TestGate checks that the faults of a gate run are determined by its seed, and that some seeds
// together cover all kinds.
func TestGate(t *testing.T) {
	t.Parallel()
	all := map[string]bool{}
	for seed := range uint64(60) {
		names := func() (names []string) {
			o := options{profile: "gate", seed: seed, lease: defaultLease}
			for _, k := range o.kinds() {
				names = append(names, k.name)
			}
			return names
		}
		require.Equal(t, names(), names())
		require.Len(t, names(), len(kindNames())-len(rare)-len(lengthy)+gateLengthy-1)
		for _, name := range names() {
			all[name] = true
		}
		for _, name := range []string{"log-blocked", "exec-blocked", "container-restart", "usr1-crash"} {
			require.Contains(t, names(), name)
		}
	}
	require.Len(t, all, len(kindNames())-len(rare))
	o := options{profile: "gate", seed: 1, lease: defaultLease, only: []string{"failover", "failover-losing"}}
	require.Len(t, o.kinds(), 2, "who names some gets them")
	o.without = []string{"failover"}
	require.Len(t, o.kinds(), 1, "but for what is not possible")
	o.only = nil
	o.without = []string{"exec-blocked", "container-restart"}
	require.Len(t, o.kinds(), len(kindNames())-len(rare)-len(lengthy)+gateLengthy-1-2)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := options{profile: "short", seed: 7, mixed: true, rate: 60, lease: defaultLease, quiet: defaultQuiet}
	require.NoError(t, good.check())
	gate := good
	gate.profile = "gate"
	require.NoError(t, gate.check())
	require.Equal(t, gateQuiet, gate.quiet)
	for _, spoil := range []func(o *options){
		func(o *options) { o.profile = "medium" },
		func(o *options) { o.rate = 0 },
		func(o *options) { o.lease = 1 },
		func(o *options) { o.quiet = -1 },
		func(o *options) { o.slow = time.Hour },
		func(o *options) { o.only = []string{"earthquake"} },
	} {
		bad := good
		spoil(&bad)
		require.Error(t, bad.check())
	}
}

// TestLeases checks that some leases are more than twice as long as others, and none is longer
// than the maximum.
func TestLeases(t *testing.T) {
	t.Parallel()
	o := options{lease: 3 * time.Second, mixed: true}
	require.Equal(t, []time.Duration{3 * time.Second, 5 * time.Second, 7 * time.Second}, o.leases())
	o.lease = 20 * time.Second
	require.Equal(t, []time.Duration{20 * time.Second, 22 * time.Second, 35 * time.Second}, o.leases())
	o.mixed = false
	require.Equal(t, []time.Duration{20 * time.Second, 20 * time.Second, 20 * time.Second}, o.leases())
	c := newChaos(o)
	c.machines = []*machine{{name: "a", lease: 3}, {name: "b", lease: 7}}
	c.guest = &machine{name: "d", lease: 5}
	for daemon, lease := range map[string]time.Duration{"a": 3, "b": 7, "d": 5, "": 7, "-": 7} {
		require.Equal(t, lease, c.leaseOf(daemon), daemon)
	}
}

func TestIDOf(t *testing.T) {
	t.Parallel()
	for _, p := range []string{`{"class":"Work","id":"chaos-12","args":[]}`, `["chaos-12"`, "\x00\xff\"chaos-12\""} {
		entry := wire.Failure{Payload: []byte(p), Exception: "E", Error: "oops"}.Encode()
		require.True(t, json.Valid(entry))
		require.Equal(t, "chaos-12", idOf(string(entry)), "%s", strings.ToValidUTF8(p, "?"))
	}
}
