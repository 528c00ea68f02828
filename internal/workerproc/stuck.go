package workerproc

import (
	"slices"
	"time"

	"github.com/resqued/resqued/internal/store"
)

const (
	// stuckRetry is how often an end is tried again that could not be written.
	stuckRetry = time.Second
	// parkAfter is how long, before it is parked.
	parkAfter = 30 * time.Second
)

// stuckEnd is a completion that Redis could not take.
type stuckEnd struct {
	store.Completion
	since time.Time
}

// stuckEnds are the completions that Redis could not take because of a key of the wrong
// type. The loop owns all fields.
type stuckEnds struct {
	ends   []stuckEnd
	firsts map[string]time.Time // when the end of a token first could not be written
	tried  time.Time
}

func newStuckEnds() stuckEnds { return stuckEnds{firsts: map[string]time.Time{}} }

// first returns since when the end of a job could not be written: now, if that is new.
func (s *stuckEnds) first(token string) time.Time {
	since, known := s.firsts[token]
	if !known {
		since = time.Now()
		s.firsts[token] = since
	}
	return since
}

// settled forgets since when the end of a job could not be written.
func (s *stuckEnds) settled(token string) { delete(s.firsts, token) }

func (s *stuckEnds) keep(c store.Completion, since time.Time) {
	s.ends = append(s.ends, stuckEnd{c, since})
}

// due moves what is stuck to into, if it is time to try it again. What has been stuck for
// parkAfter is to be parked, and all of it if park is set.
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

// has reports whether the end of a job is stuck.
func (s *stuckEnds) has(token string) bool {
	return slices.ContainsFunc(s.ends, func(e stuckEnd) bool { return e.Job.Token == token })
}
