package view

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// knownDelayed limits the delayed jobs among which similar names are suggested.
const knownDelayed = 1000

// DelayedJob is a job that waits for its time.
type DelayedJob struct {
	// Name is the prefix of ID by which "schedule rm" finds the job.
	Name string `json:"name"`
	// When is always "once".
	When string     `json:"when"`
	Next *time.Time `json:"next"`
	// Last and LastOutcome are always null; lists also contain Schedules, which have them.
	Last        *time.Time      `json:"last"`
	LastOutcome *string         `json:"last_outcome"`
	ID          string          `json:"id,omitempty"`
	Class       string          `json:"class"`
	Args        json.RawMessage `json:"args"`
	// Wrappers are the classes around an Active Job, innermost first.
	Wrappers []string `json:"wrappers,omitempty"`
	Queue    string   `json:"queue"`
	// Invalid is the beginning of a payload that is not a job.
	Invalid string `json:"invalid,omitempty"`
}

func fits(m *filter.Matcher) func(j *store.DelayedJob) bool {
	return func(j *store.DelayedJob) bool {
		_, _, ok := m.Job(filter.Job{Queue: j.Queue, Payload: j.Payload, At: j.Due})
		return ok
	}
}

// Delayed returns at most limit delayed jobs after a place that fit, the earliest first, and the next
// place or "".
func Delayed(ctx context.Context, s *store.Store, m *filter.Matcher, after store.DelayedPlace, limit int) (views []DelayedJob, next string, err error) {
	jobs, place, err := s.NextDelayed(ctx, after, limit, fits(m))
	if err != nil {
		return nil, "", err
	}
	views = make([]DelayedJob, len(jobs))
	for i := range jobs {
		views[i] = newDelayed(redact.From(ctx), &jobs[i])
	}
	return views, place.String(), nil
}

// FindDelayed returns the delayed jobs whose ids begin with names or, without names, those that fit.
// The error is a NotFoundError or an AmbiguousError if a name does not match
// exactly one id; schedules are other names to suggest.
func FindDelayed(ctx context.Context, s *store.Store, names, schedules []string, m *filter.Matcher) ([]store.DelayedJob, error) {
	var jobs []store.DelayedJob
	var ids []string
	known, want := slices.Clone(schedules), fits(m)
	for job, err := range s.DelayedJobs(ctx) {
		if err != nil {
			return nil, err
		}
		id := job.ID()
		if len(known) < len(schedules)+knownDelayed {
			known = append(known, id[:ShortID])
		}
		begins := func(name string) bool { return strings.HasPrefix(id, strings.ToLower(name)) }
		if len(names) > 0 && slices.ContainsFunc(names, begins) || len(names) == 0 && want(&job) {
			jobs, ids = append(jobs, job), append(ids, id)
		}
	}
	for _, name := range names {
		var matches []string
		for _, id := range ids {
			if strings.HasPrefix(id, strings.ToLower(name)) && !slices.Contains(matches, id) {
				matches = append(matches, id)
			}
		}
		switch {
		case len(matches) == 0:
			return nil, &NotFoundError{Kind: "schedule or delayed job", Name: name, Known: known}
		case len(matches) > 1:
			return nil, &AmbiguousError{Kind: "delayed job", Name: name, Matches: matches}
		}
	}
	return jobs, nil
}

func newDelayed(rules *redact.Rules, j *store.DelayedJob) DelayedJob {
	id, due := j.ID(), j.Due
	v := DelayedJob{Name: id[:ShortID], ID: id, When: "once", Next: &due, Queue: j.Queue, Args: json.RawMessage("null")}
	if e, err := wire.Parse(j.Payload, 0); err == nil {
		v.Class, v.Args, v.Wrappers = shown(rules, e)
	} else {
		v.Class, v.Invalid = "(invalid)", rules.Text(wire.Printable(string(j.Payload), 200))
	}
	return v
}
