package view

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/longjob"
)

// LongJob is one run of a long job.
type LongJob struct {
	UUID    string                     `json:"uuid"`
	Class   string                     `json:"class"`
	Args    json.RawMessage            `json:"args"`
	Status  longjob.Status             `json:"status"`
	Queue   string                     `json:"queue"`
	Tenant  string                     `json:"tenant,omitempty"`
	Place   int                        `json:"place,omitempty"`
	Slice   int                        `json:"slice"`
	Slices  int                        `json:"slices"`
	Units   int64                      `json:"units"`
	RanMS   int64                      `json:"ran_ms"`
	UnitMS  int64                      `json:"unit_ms"`
	Steps   []longjob.Step             `json:"steps"`
	ETA     *float64                   `json:"eta_seconds"`
	Created *time.Time                 `json:"created_at"`
	Begun   *time.Time                 `json:"begun_at"`
	Seen    *time.Time                 `json:"last_seen_at"`
	Ended   *time.Time                 `json:"ended_at"`
	Paused  *time.Time                 `json:"paused_at,omitempty"`
	Deaths  int                        `json:"deaths"`
	Failed  int                        `json:"failures"`
	Refused int                        `json:"refused,omitempty"`
	Rerun   bool                       `json:"rerun"`
	Message string                     `json:"message"`
	Error   string                     `json:"error"`
	Warning string                     `json:"warning"`
	State   map[string]json.RawMessage `json:"state,omitempty"`
	// Timeline are the newest 200 ended slices, if a single run is shown.
	Timeline []EndedSlice `json:"ended_slices,omitempty"`
}

// EndedSlice is a slice of a run that has ended.
type EndedSlice struct {
	Started time.Time `json:"started_at"`
	MS      int64     `json:"ms"`
	Units   int64     `json:"units"`
	// Outcome is yielded, waits, interrupted, completed, failed, or died (with its process).
	Outcome string `json:"outcome"`
	Proc    string `json:"process"`
}

// Took is how long the slice ran.
func (e EndedSlice) Took() time.Duration { return time.Duration(e.MS) * time.Millisecond }

// EndedSlices returns the ended slices of a run, the oldest first.
func EndedSlices(ctx context.Context, s *longstore.Store, uuid string) ([]EndedSlice, error) {
	slices, err := s.Slices(ctx, uuid)
	if err != nil {
		return nil, err
	}
	views := make([]EndedSlice, len(slices))
	for i, e := range slices {
		views[i] = EndedSlice{Started: e.Started, MS: e.Took.Milliseconds(), Units: e.Units, Outcome: e.Outcome, Proc: e.Proc}
	}
	return views, nil
}

// NewLongJob returns the view of a run.
func NewLongJob(ctx context.Context, r longjob.Run) LongJob {
	v := LongJob{
		UUID: r.UUID, Class: r.Class, Args: redact.From(ctx).Args(r.Class, json.RawMessage(r.Args.String())), Status: r.Status, Queue: r.Queue, Slice: r.Slice, Slices: r.Slices,
		Units: r.Units, RanMS: r.Ran.Milliseconds(), UnitMS: r.UnitTime.Milliseconds(), Steps: r.Steps, Deaths: r.Deaths, Failed: r.Failures, Refused: r.Refused, Rerun: r.Rerun,
		Tenant: r.Tenant, Place: r.Place, Message: r.Message, Error: r.Error, Warning: r.Warning, State: r.State,
		Created: instant(r.Created), Begun: instant(r.Begun), Seen: instant(r.Seen), Ended: instant(r.Ended), Paused: instant(r.Paused),
	}
	if v.Steps == nil {
		v.Steps = []longjob.Step{}
	}
	if step, ok := v.Step(); ok && !step.Finished && !r.Status.Over() {
		if left, ok := step.Left(); ok {
			v.ETA = new(left.Seconds())
		}
	}
	return v
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Step returns the last unfinished step, else the last one. ok is false if there is none.
func (v *LongJob) Step() (step longjob.Step, ok bool) {
	for _, step := range slices.Backward(v.Steps) {
		if !step.Finished {
			return step, true
		}
	}
	if n := len(v.Steps); n > 0 {
		return v.Steps[n-1], true
	}
	return step, false
}

// LongJobs returns at most f.Limit runs, ended ones last, and whether there are more.
func LongJobs(ctx context.Context, c *longjob.Client, f longjob.Filter) (views []LongJob, more bool, err error) {
	limit := f.Limit
	f.Limit++ // to see whether there are more
	runs, err := c.List(ctx, f)
	if err != nil {
		return nil, false, err
	}
	if more = len(runs) > limit; more {
		runs = runs[:limit]
	}
	views = make([]LongJob, len(runs))
	for i, r := range runs {
		views[i] = NewLongJob(ctx, r)
	}
	return views, more, nil
}

// FindLongJob returns a run by its uuid or a prefix of it. The error is a NotFoundError or an
// AmbiguousError if there is not exactly one.
func FindLongJob(ctx context.Context, c *longjob.Client, name string) (longjob.Run, error) {
	run, err := c.Get(ctx, name)
	if !errors.Is(err, longjob.ErrNotFound) {
		return run, err
	}
	runs, err := c.List(ctx, longjob.Filter{})
	if err != nil {
		return run, err
	}
	var known, found []string
	for _, r := range runs {
		known = append(known, r.UUID)
		if strings.HasPrefix(r.UUID, strings.ToLower(name)) {
			found = append(found, r.UUID)
		}
	}
	switch len(found) {
	case 0:
		return run, &NotFoundError{Kind: "long job", Name: name, Known: known}
	case 1:
		return c.Get(ctx, found[0])
	}
	return run, &AmbiguousError{Kind: "long job", Name: name, Matches: found}
}
