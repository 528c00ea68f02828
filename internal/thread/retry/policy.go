// Package retry decides whether and when a failed job runs again. It counts the runs in the same
// key as Ruby's resque-retry, so that both may run a job.
//
// policy.go and match.go decide and have no dependencies; count.go reads counts from Redis;
// book.go holds the policies of all classes.
package retry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/resqued/resqued"
)

// Policy is a class's resqued.Retry, ready to decide.
type Policy struct {
	attempts     int
	backoff      []time.Duration
	base, max    time.Duration
	only, never  *matcher // only nil = every error
	ignoreDeaths bool
	expireAfter  time.Duration
	random       func(n int64) int64 // from 0 to below n
}

// NewPolicy returns the policy that r describes.
func NewPolicy(r resqued.Retry) (*Policy, error) {
	p := &Policy{
		attempts: r.Attempts, backoff: r.Backoff, base: r.Base, max: r.Max,
		ignoreDeaths: r.IgnoreDeaths, expireAfter: r.ExpireAfter, random: rand.Int64N,
	}
	if p.attempts == 0 {
		p.attempts = resqued.DefaultRetryAttempts
	}
	if p.base == 0 {
		p.base = resqued.DefaultRetryBase
		if p.max > 0 {
			p.base = min(p.base, p.max)
		}
	}
	if p.max == 0 {
		p.max = max(resqued.DefaultRetryMax, p.base)
	}
	var err error
	if !r.RetryOn.IsZero() {
		if p.only, err = newMatcher(r.RetryOn); err != nil {
			return nil, fmt.Errorf("retry on: %w", err)
		}
	}
	if p.never, err = newMatcher(r.NeverOn); err != nil {
		return nil, fmt.Errorf("never on: %w", err)
	}
	return p, nil
}

// Attempts returns the maximum number of runs.
func (p *Policy) Attempts() int { return p.attempts }

// Attempt returns the number of a run, from 1. counted is the count in Redis: the number of the
// last run, from 0, or -1 if there is none. deaths is how many worker processes have died with
// the job since.
func (p *Policy) Attempt(counted, deaths int) int {
	attempt := max(counted, -1) + 2
	if !p.ignoreDeaths {
		attempt += max(deaths, 0)
	}
	return attempt
}

// Failed decides whether a job runs again after its failed run number attempt, and after which wait.
func (p *Policy) Failed(attempt int, f Failure) (wait time.Duration, again bool) {
	if attempt >= p.attempts || p.never.matches(f) || p.only != nil && !p.only.matches(f) {
		return 0, false
	}
	return p.wait(attempt), true
}

func (p *Policy) wait(attempt int) time.Duration {
	attempt = max(attempt, 1)
	if n := len(p.backoff); n > 0 {
		return p.backoff[min(attempt, n)-1]
	}
	// Full jitter: jobs that failed together must not all come back together.
	limit := min(int64(p.limit(attempt)), math.MaxInt64-1)
	return time.Duration(p.random(limit + 1))
}

func (p *Policy) limit(attempt int) time.Duration {
	limit := p.base
	for range attempt - 1 {
		if limit > p.max/2 || limit > math.MaxInt64/2 {
			return p.max
		}
		limit *= 2
	}
	return min(limit, p.max)
}

// Lifetime returns how long Redis keeps the count of a waiting job; 0 = for ever.
func (p *Policy) Lifetime(wait time.Duration) time.Duration {
	if p.expireAfter == 0 {
		return 0
	}
	return min(wait, math.MaxInt64-p.expireAfter) + p.expireAfter
}
