package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	// defaultLease is a tenth of the daemon's default, so that faults of a lease take seconds.
	defaultLease = 3 * time.Second
	// guarded is the shortest lease with which a master can end a stopped worker process before
	// its locks expire; its worker processes report every two seconds.
	guarded = 10 * time.Second
	// maxLease is the longest lease of a daemon.
	maxLease    = 35 * time.Second
	termTimeout = time.Second
	maxDeaths   = 3
	// round is how often masters look for dead processes of other masters.
	round = 5500 * time.Millisecond
	// defaultQuiet is the time without faults before each round of faults.
	defaultQuiet = 8 * time.Second
	// maxCatchUp bounds the time until a quiet time begins. Two daemons need some 20 s for a
	// full backlog and the jobs that arrive in that time.
	maxCatchUp = 30 * time.Second
	// shortDecks is how often the short profile injects every kind of fault shorter than a
	// lease, if that takes at most shortTime.
	shortDecks = 2
	shortTime  = 170 * time.Second
	// gateLengthy is how many of the kinds that take a lease the gate profile injects; gateQuiet
	// is its time without faults. In total it takes 75 s.
	gateLengthy = 1
	gateQuiet   = 6 * time.Second
	// How often a long run, of longTime, must have injected each kind, and how many jobs must
	// have been recovered.
	longTime       = 30 * time.Minute
	longFaults     = 20
	longRecoveries = 1000
	// maxSettle bounds the time until all jobs are done after the last fault.
	maxSettle = 60 * time.Second
)

// options are the values of the flags.
type options struct {
	profile  string
	seed     uint64
	duration time.Duration
	dir      string
	keep     bool
	verbose  bool
	rate     float64
	lease    time.Duration
	quiet    time.Duration
	slow     time.Duration
	settle   time.Duration
	least    int
	mixed    bool
	table    string
	// previous is a commit; built is the program that was built from it.
	previous, built string
	only            []string
	// given are the other flags of the command line.
	given string
	// without are the kinds of faults that are impossible here.
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
	if o.rate <= 0 || o.rate > 1000 {
		return fmt.Errorf("-rate %g must be in 0 to 1000", o.rate)
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
		if known := kindNames(); !slices.Contains(known, name) {
			return fmt.Errorf("-faults: no kind %q; there are %s", name, strings.Join(known, " "))
		}
	}
	return nil
}

// leases returns the job_lock_duration of each daemon. The last is more than twice the first, so
// that a lease by one daemon's setting is far too short for another.
func (o *options) leases() []time.Duration {
	if !o.mixed {
		return []time.Duration{o.lease, o.lease, o.lease}
	}
	return []time.Duration{o.lease, min(o.lease+2*time.Second, maxLease), min(2*o.lease+time.Second, maxLease)}
}

// leastFaults returns how often each kind must have happened.
func (o *options) leastFaults() int {
	switch {
	case o.least > 0:
		return o.least
	case o.profile == "long" && o.duration >= longTime:
		return longFaults
	}
	return 1
}

// leastRecoveries returns how many jobs must have been recovered.
func (o *options) leastRecoveries() int {
	if o.profile == "long" && o.duration >= longTime && len(o.only) == 0 {
		return longRecoveries
	}
	return 1
}

// command returns the command that repeats this run.
func (o *options) command() string {
	return fmt.Sprintf("go run ./test/chaos -profile %s -seed %d%s", o.profile, o.seed, o.given)
}

// kinds returns the faults of this run: the named ones, or all except those named with a "!", or
// the profile's.
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

// leftOut returns the kinds for which a gate run with this seed has no time: all but a few of
// those that take a lease, and one of the two failovers, which copy a server.
func leftOut(seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 3))
	out := slices.Clone(lengthy)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return append(out[gateLengthy:], []string{"failover", "failover-losing"}[r.IntN(2)])
}
