package resqued

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// What a Retry says where it says nothing.
const (
	DefaultRetryAttempts = 5
	DefaultRetryBase     = 10 * time.Second
	DefaultRetryMax      = time.Hour
)

// Retry is the option that runs failed jobs of a class again, as Ruby's resque-retry
// does, and counts their attempts together with it. The zero value runs a job at most
// five times, with waits of at most 10 s, 20 s, 40 s and 80 s, whatever its error.
//
// A job that is to run again waits as a delayed job, with the bytes that were pushed.
// Only the last failure is recorded in the failed list. Requeue and Discard stay what
// they are; a job that somebody has killed by its id does not run again.
type Retry struct {
	// Attempts is how often a job runs at most, the first time included; 0 =
	// DefaultRetryAttempts, and 1 never runs a job again.
	Attempts int
	// Backoff are the waits before the second run, the third and so on. The last one
	// counts for all that follow. Give either these or Base and Max.
	Backoff []time.Duration
	// Without Backoff the wait before the second run is a random one of at most Base
	// (0 = DefaultRetryBase). What is allowed doubles with each further run, up to Max
	// (0 = DefaultRetryMax, or Base if that is more).
	Base, Max time.Duration
	// RetryOn are the errors after which a job runs again; the zero value means all.
	// NeverOn are those after which it does not, whatever RetryOn says.
	RetryOn, NeverOn Errors
	// IgnoreDeaths: a run that its worker process has not survived is no attempt.
	IgnoreDeaths bool
	// ExpireAfter, if not 0, is how long after a wait Redis forgets the number of
	// attempts if the job does not run; whole seconds.
	ExpireAfter time.Duration
}

// Errors selects errors: all that meet one of its conditions. The zero value selects
// none.
type Errors struct {
	// Is are errors as errors.Is wants them.
	Is []error
	// Exceptions are names as failure records have them, in which * stands for any
	// text: Resqued::Timeout, *net.OpError, MyApp::*.
	Exceptions []string
	// Messages are regular expressions, of which one has to fit some part of the
	// error's text.
	Messages []string
	// ExitCodes are those of commands.
	ExitCodes []int
	// Func says it by code of its own. One that panics selects nothing.
	Func func(err error) bool
}

// IsZero reports whether there is no condition.
func (e Errors) IsZero() bool {
	return len(e.Is) == 0 && len(e.Exceptions) == 0 && len(e.Messages) == 0 && len(e.ExitCodes) == 0 && e.Func == nil
}

func (r Retry) apply(c *Class) { c.Retry = &r }

// check refuses what contradicts itself.
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
