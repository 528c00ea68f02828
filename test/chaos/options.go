package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The timing of the daemons under test: a tenth of the default, so that what takes
// a lease takes seconds.
const (
	lease       = 3 * time.Second
	beatSeconds = 1
	termTimeout = time.Second
	maxDeaths   = 3
	// round is how often masters look for the dead of others.
	round = 5500 * time.Millisecond
	// quiet is how long nothing is broken at the beginning.
	quiet = 8 * time.Second
	// settle bounds the time until all jobs are done when nothing is broken any more.
	settle = 60 * time.Second
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
	slack      float64
	bystanders bool
	only       []string
}

func (o *options) check() error {
	switch o.profile {
	case "short", "long":
	default:
		return fmt.Errorf("-profile %q: short or long", o.profile)
	}
	if o.rate <= 0 || o.rate > 1000 || o.slack < 1 {
		return fmt.Errorf("-rate %g must be in 0 to 1000, -slack %g at least 1", o.rate, o.slack)
	}
	for _, name := range o.only {
		if !slices.Contains(kindNames(), name) {
			return fmt.Errorf("-faults: no kind %q; there are %s", name, strings.Join(kindNames(), " "))
		}
	}
	return nil
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
	if len(o.only) > 0 {
		c += " -faults " + strings.Join(o.only, ",")
	}
	return c
}

// kinds are the faults of this run.
func (o *options) kinds() []kind {
	if len(o.only) == 0 {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return !slices.Contains(o.only, k.name) })
}
