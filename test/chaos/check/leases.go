package check

import (
	"slices"
	"time"
)

// LeaseLook is the state of the leases in Redis at one instant.
type LeaseLook struct {
	// Now is that instant in ms by Redis's clock. Until maps worker processes to the ends of
	// their leases; 0 means that the process was taken for dead.
	Now   int64
	Until map[string]int64
	// Unlisted are the worker ids of living processes that are not registered.
	Unlisted []string
	// Epoch changes when Redis may have lost writes.
	Epoch int
}

// Leases is C13: the end of a lease depends only on its own process, and the threads of each
// living process stay registered.
type Leases struct {
	Result
	last LeaseLook
}

// NewLeases returns a check without any look yet.
func NewLeases() *Leases { return &Leases{Result: Result{Name: "C13 leases"}} }

// slight is the tolerance for rounding.
const slight = 100 * time.Millisecond

// Look compares a look with the previous one. leaseOf returns the length of a worker process's
// lease; 0 = unknown.
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
