package workerproc

import (
	"slices"
	"time"

	"github.com/resqued/resqued/internal/store"
)

const (
	// stuckRetry is the time between tries to write an end.
	stuckRetry = time.Second
	// parkAfter is how long an end is tried before it is parked.
	parkAfter = 30 * time.Second
)

type stuckEnd struct {
	store.Completion
	since time.Time
}

// stuckEnds are the completions that Redis could not take because of a key of the wrong type.
// The loop owns all fields.
type stuckEnds struct {
	ends   []stuckEnd
	firsts map[string]time.Time // when writing a token's end first failed
	tried  time.Time
}

func newStuckEnds() stuckEnds { return stuckEnds{firsts: map[string]time.Time{}} }

// first returns when writing a job's end first failed: now, if that is new.
func (s *stuckEnds) first(token string) time.Time {
	since, known := s.firsts[token]
	if !known {
		since = time.Now()
		s.firsts[token] = since
	}
	return since
}

func (s *stuckEnds) settled(token string) { delete(s.firsts, token) }

func (s *stuckEnds) keep(c store.Completion, since time.Time) {
	s.ends = append(s.ends, stuckEnd{c, since})
}

// due moves the stuck ends to into, if it is time to retry. Ends stuck for parkAfter are to be
// parked; with park, all of them.
func (s *stuckEnds) due(into []store.Completion, park bool) []store.Completion {
	if len(s.ends) == 0 || time.Since(s.tried) < stuckRetry {
		return into
	}
	s.tried = time.Now()
	for _, e := range s.ends {
		e.Park = e.Park || park || time.Since(e.since) >= parkAfter
		into = append(into, e.Completion)
	}
	s.ends = nil
	return into
}

func (s *stuckEnds) has(token string) bool {
	return slices.ContainsFunc(s.ends, func(e stuckEnd) bool { return e.Job.Token == token })
}
