package resqued

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Defaults of Retry.
const (
	DefaultRetryAttempts = 5
	DefaultRetryBase     = 10 * time.Second
	DefaultRetryMax      = time.Hour
)

// Retry is the option that makes failed jobs of a class run again, as Ruby's resque-retry does.
// Go and Ruby share the count of attempts. The zero value runs a job at most five times, after
// any error, with random waits of at most 10 s, 20 s, 40 s and 80 s.
//
// A job that is to run again waits as a delayed job, with the bytes that were pushed. Only the
// last failure is recorded in the failed list. Requeue and Discard are not failures, and a job
// that was killed by its id does not run again.
type Retry struct {
	// Attempts is how often a job runs at most, including the first time; 0 =
	// DefaultRetryAttempts.
	Attempts int
	// Backoff has the waits before the second run, the third, and so on; the last one is used
	// for all further runs. It cannot be combined with Base and Max.
	Backoff []time.Duration
	// Base and Max apply without Backoff: the wait before the second run is random and at most
	// Base (0 = DefaultRetryBase). The limit doubles with each further run, up to Max (0 =
	// DefaultRetryMax, or Base if that is longer).
	Base, Max time.Duration
	// RetryOn selects the errors after which a job runs again; the zero value selects all.
	// NeverOn selects errors after which it does not, whatever RetryOn says.
	RetryOn, NeverOn Errors
	// IgnoreDeaths excludes runs whose worker process died from the attempts.
	IgnoreDeaths bool
	// ExpireAfter, if not 0, is how long after a wait Redis keeps the number of attempts of a
	// job that does not run. It must be whole seconds.
	ExpireAfter time.Duration
}

// Errors selects the errors that meet at least one of its conditions. The zero value selects
// none.
type Errors struct {
	// Is has targets for errors.Is.
	Is []error
	// Exceptions has names of exceptions as in failure records; * matches any text:
	// Resqued::Timeout, *net.OpError, MyApp::*.
	Exceptions []string
	// Messages has regular expressions that are searched for in the text of the error.
	Messages []string
	// ExitCodes has exit codes of commands.
	ExitCodes []int
	// Func reports whether an error is selected. If it panics, the error is not.
	Func func(err error) bool
}

// IsZero reports whether e has no condition.
func (e Errors) IsZero() bool {
	return len(e.Is) == 0 && len(e.Exceptions) == 0 && len(e.Messages) == 0 && len(e.ExitCodes) == 0 && e.Func == nil
}

func (r Retry) apply(c *Class) { c.Retry = &r }

func (r *Retry) check() error {
	switch {
	case r.Attempts < 0:
		return fmt.Errorf("negative Attempts: %d", r.Attempts)
	case len(r.Backoff) > 0 && (r.Base != 0 || r.Max != 0):
		return errors.New("give either Backoff or Base and Max")
	case r.Base < 0 || r.Max < 0:
		return errors.New("negative Base or Max")
	case r.Max > 0 && r.Max < r.Base:
		return fmt.Errorf("less Max, %s, than Base, %s", r.Max, r.Base)
	case r.ExpireAfter < 0 || r.ExpireAfter%time.Second != 0:
		return fmt.Errorf("ExpireAfter must be whole seconds: %s", r.ExpireAfter)
	}
	for _, wait := range r.Backoff {
		if wait < 0 {
			return fmt.Errorf("negative wait in Backoff: %s", wait)
		}
	}
	for _, e := range []Errors{r.RetryOn, r.NeverOn} {
		for _, pattern := range e.Messages {
			if _, err := regexp.Compile(pattern); err != nil {
				return fmt.Errorf("a pattern of Messages: %w", err)
			}
		}
	}
	return nil
}
