package resqued

import (
	"fmt"
	"slices"
	"time"
)

// The values of Limit.OnLimit say what happens to a job that is over a limit.
const (
	LimitWait    = "wait"    // it waits, behind others of the same key
	LimitRequeue = "requeue" // it goes back to its queue, when the limit may let it go or after a second
	LimitDiscard = "discard" // it ends without a run
	LimitFail    = "fail"    // it fails with ErrLimit, and runs again if its class is retried
	LimitReplace = "replace" // the oldest job in its way is killed, and it runs next
)

// The values of Limit.Per say what a limit counts for.
const (
	PerFleet   = "fleet" // all daemons
	PerHost    = "host"
	PerProcess = "process"
)

// Limit bounds how many jobs run at once, how many begin in a time, or both. A job with several limits begins if all
// of them let it.
type Limit struct {
	// Name identifies the limit: letters, digits, _, - and the dot.
	Name string
	// Classes and Queues are names and globs of the jobs it is for. If both are given, both must cover a job.
	Classes, Queues []string
	// Key returns what to count by, such as an account: each key has its own limit. Nil = one for all. It is called in
	// worker processes after a job is taken, and must return the same result each time. Only Class, Queue, Args,
	// Payload and the ID of the payload are set. A job for which it panics fails.
	Key func(job *Job) string
	// Concurrency is how many jobs of a key may run at once; 0 = any number.
	Concurrency int
	// Rate is how many jobs of a key may begin per Period, on average; 0 = any number. Burst is how many may begin at
	// once after a pause; 0 = 1.
	Rate   int
	Period time.Duration
	Burst  int
	// Cost returns how many of Rate a job takes; nil = 1. A job that costs more than Burst fails.
	Cost func(job *Job) int
	// OnLimit and Per are one of the constants above; "" = LimitWait and PerFleet.
	OnLimit, Per string
}

// Limit adds a limit. One of the same name in the configuration takes its place. Limit panics if there is already one
// of that name.
func (h *Handlers) Limit(l Limit) {
	if slices.ContainsFunc(h.limits, func(other Limit) bool { return other.Name == l.Name }) {
		panic(fmt.Sprintf("resqued: two limits have the name %q", l.Name))
	}
	h.limits = append(h.limits, l)
}

// Limits returns the arguments of all calls of Limit.
func (h *Handlers) Limits() []Limit { return slices.Clone(h.limits) }

// LimitHit returns an error that puts the job back at the tail of its queue, and lets no job of the same key of a limit
// begin before until. Return it where a service says that it has had too many requests (429). name is one of the job's
// limits. It is not a failure.
func LimitHit(name string, until time.Time) error { return &LimitHitError{Name: name, Until: until} }

// LimitHitError is the error that LimitHit returns.
type LimitHitError struct {
	// Name is the name of the limit.
	Name string
	// Until is when jobs of the key may begin again.
	Until time.Time
}

// Error returns a text that includes the name and the time.
func (e *LimitHitError) Error() string {
	return fmt.Sprintf("resqued: limit %s is hit until %s", e.Name, e.Until.Format(time.RFC3339))
}
