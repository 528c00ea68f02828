package check

import (
	"slices"
	"time"
)

// LeaseLook is what Redis says of worker processes at one instant.
type LeaseLook struct {
	// Now is that instant in ms by Redis's clock, Until the end of each lease; 0 = the
	// process was given up for dead.
	Now   int64
	Until map[string]int64
	// Unlisted are ids of the workers of living processes that are not among the workers.
	Unlisted []string
	// Epoch changes when Redis may have lost something.
	Epoch int
}

// Leases is C13: a lease ends when its own process says, whatever leases others have, and
// the threads of each living process are registered, whoever else is gone.
type Leases struct {
	Result
	last LeaseLook
}

// NewLeases returns a check that has seen nothing yet.
func NewLeases() *Leases { return &Leases{Result: Result{Name: "C13 leases"}} }

// slight is how far a lease may be off for roundings.
const slight = 100 * time.Millisecond

// Look compares a look with the last one. leaseOf tells how long leases of a worker process
// are; 0 = not known.
func (l *Leases) Look(s LeaseLook, leaseOf func(proc string) time.Duration) {
	same := s.Epoch == l.last.Epoch
	for proc, until := range s.Until {
		if until == 0 {
			continue
		}
		l.Looked++
		before := l.last.Until[proc]
		if same && until < before {
			l.fail(nil, "the lease of %s, which lasts %s, was cut by %d ms, to %d ms", proc, leaseOf(proc), before-until, until-s.Now)
		}
		left := time.Duration(until-s.Now) * time.Millisecond
		if own := leaseOf(proc); own > 0 && left > own+slight {
			l.fail(nil, "the lease of %s lasts %s more, and its own is %s", proc, left, own)
		}
	}
	for _, id := range s.Unlisted {
		if !slices.Contains(l.last.Unlisted, id) || !same {
			l.fail(nil, "%s works on and is not among the workers", id)
		}
	}
	l.last = s
}
