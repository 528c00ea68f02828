package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	// defaultLease is a tenth of the daemon's own, so that what takes a lease takes
	// seconds.
	defaultLease = 3 * time.Second
	// guarded is the shortest lease with which a master, which hears from its worker
	// processes every two seconds, ends a stopped one before its locks expire.
	guarded = 10 * time.Second
	// maxLease is the longest that a daemon gives.
	maxLease    = 35 * time.Second
	termTimeout = time.Second
	maxDeaths   = 3
	// round is how often masters look for the dead of others.
	round = 5500 * time.Millisecond
	// defaultQuiet is how long nothing is broken before each round of faults.
	defaultQuiet = 8 * time.Second
	// maxCatchUp bounds the time until a quiet time begins. As many jobs as producers leave
	// waiting, and those that come meanwhile, take both daemons some 20 s.
	maxCatchUp = 30 * time.Second
	// shortDecks is how often the short profile injects every kind of fault that takes
	// no lease, if it does not take longer than shortTime; it needs some more to end.
	shortDecks = 2
	shortTime  = 170 * time.Second
	// gateLengthy is how many of the kinds that take a lease the gate profile injects,
	// gateQuiet how long it breaks nothing before, so that all of it takes 75 s.
	gateLengthy = 1
	gateQuiet   = 6 * time.Second
	// A long run of longTime has to have injected each kind so often, and to have had
	// so many jobs recovered.
	longTime       = 30 * time.Minute
	longFaults     = 20
	longRecoveries = 1000
	// maxSettle bounds the time until all jobs are done when nothing is broken any more.
	maxSettle = 60 * time.Second
)

// options are what the command line says.
type options struct {
	profile    string
	seed       uint64
	duration   time.Duration
	dir        string
	keep       bool
	verbose    bool
	rate       float64
	lease      time.Duration
	quiet      time.Duration
	slow       time.Duration
	settle     time.Duration
	slack      float64
	least      int
	bystanders bool
	pair       bool
	mixed      bool
	table      string
	only       []string
	// without are the kinds of faults that are not possible here.
	without []string
}

func (o *options) check() error {
	switch o.profile {
	case "short", "long":
	case "gate":
		if o.quiet == defaultQuiet {
			o.quiet = gateQuiet
		}
	default:
		return fmt.Errorf("-profile %q: gate, short or long", o.profile)
	}
	if o.rate <= 0 || o.rate > 1000 || o.slack < 1 {
		return fmt.Errorf("-rate %g must be in 0 to 1000, -slack %g at least 1", o.rate, o.slack)
	}
	if o.lease < 2*time.Second || o.lease > maxLease || o.lease%time.Second != 0 {
		return fmt.Errorf("-lease %s must be 2 to 35 whole seconds", o.lease)
	}
	if o.quiet < 0 || o.slow < 0 || o.slow > maxSettle/2 || o.settle < 0 {
		return fmt.Errorf("-quiet %s and -settle %s must not be negative, -slow %s in 0 to %s", o.quiet, o.settle, o.slow, maxSettle/2)
	}
	if o.slow == 0 && o.lease >= guarded {
		o.slow = slices.Max(o.leases()) * 6 / 5
	}
	for _, name := range o.only {
		name = strings.TrimPrefix(name, "!")
		if !slices.Contains(kindNames(), name) {
			return fmt.Errorf("-faults: no kind %q; there are %s", name, strings.Join(kindNames(), " "))
		}
	}
	return nil
}

// leases are the job_lock_duration of each daemon. That of the last is more than twice as long
// as that of the first: what one gives by its own may be too short for another by far.
func (o *options) leases() []time.Duration {
	if !o.mixed {
		return []time.Duration{o.lease, o.lease, o.lease}
	}
	return []time.Duration{o.lease, min(o.lease+2*time.Second, maxLease), min(2*o.lease+time.Second, maxLease)}
}

// leastFaults is how often each kind has to have happened.
func (o *options) leastFaults() int {
	switch {
	case o.least > 0:
		return o.least
	case o.profile == "long" && o.duration >= longTime:
		return longFaults
	}
	return 1
}

// leastRecoveries is how many jobs have to have been recovered.
func (o *options) leastRecoveries() int {
	if o.profile == "long" && o.duration >= longTime && len(o.only) == 0 {
		return longRecoveries
	}
	return 1
}

// command is what repeats this run.
func (o *options) command() string {
	c := fmt.Sprintf("go run ./test/chaos -profile %s -seed %d", o.profile, o.seed)
	if o.profile == "long" {
		c += " -duration " + o.duration.String()
	}
	if o.rate != 60 {
		c += fmt.Sprintf(" -rate %g", o.rate)
	}
	if o.lease != defaultLease {
		c += " -lease " + o.lease.String()
	}
	if o.quiet != defaultQuiet && (o.profile != "gate" || o.quiet != gateQuiet) {
		c += " -quiet " + o.quiet.String()
	}
	if o.slow != 0 {
		c += " -slow " + o.slow.String()
	}
	if !o.pair {
		c += " -pair=false"
	}
	if !o.mixed {
		c += " -mixed=false"
	}
	if len(o.only) > 0 {
		c += " -faults '" + strings.Join(o.only, ",") + "'"
	}
	return c
}

// kinds are the faults of this run: those that are named, or all but those that are
// named with a "!", or what the profile has.
func (o *options) kinds() []kind {
	var out []string
	switch o.profile {
	case "gate":
		out = append(leftOut(o.seed), rare...)
	case "short":
		out = rare
	}
	return slices.DeleteFunc(allKinds(), func(k kind) bool {
		switch {
		case slices.Contains(o.without, k.name):
			return true
		case len(o.only) == 0:
			return slices.Contains(out, k.name)
		case strings.HasPrefix(o.only[0], "!"):
			return slices.Contains(o.only, "!"+k.name)
		}
		return !slices.Contains(o.only, k.name)
	})
}

// leftOut are the kinds that a gate run with a seed has no time for: all but a few of those
// that take a lease, and one of the two failovers, for which a server has to be copied.
func leftOut(seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 3))
	out := slices.Clone(lengthy)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return append(out[gateLengthy:], []string{"failover", "failover-losing"}[r.IntN(2)])
}
