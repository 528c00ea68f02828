package longjob

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
)

// Status is the status of a run.
type Status string

// The statuses. The last four are final.
const (
	// StatusQueued means that the next slice waits.
	StatusQueued Status = "queued"
	// StatusRunning means that a slice runs.
	StatusRunning Status = "running"
	// StatusPaused means that Pause has paused the run and no slice of it runs.
	StatusPaused Status = "paused"
	// StatusCompleted means that the function returned nil.
	StatusCompleted Status = "completed"
	// StatusFailed means that the function returned an error too often or returned ErrFinal, or
	// that too many worker processes died.
	StatusFailed Status = "failed"
	// StatusCancelled means that Cancel ended the run.
	StatusCancelled Status = "cancelled"
	// StatusSuperseded means that a newer run with the same class and arguments replaced it.
	StatusSuperseded Status = "superseded"
)

// Over reports whether the status is final.
func (s Status) Over() bool {
	return s != StatusQueued && s != StatusRunning && s != StatusPaused
}

// Step is the progress of a WorkOnce, WorkEach or WorkTree that is not within another.
type Step struct {
	// Name is the key of the step.
	Name string `json:"name"`
	// Done is the number of items done, Total the number of all items; 0 = unknown.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	// Milliseconds is the time spent on the done items, ItemMilliseconds the time spent so far
	// on the current item.
	Milliseconds     int64 `json:"ms"`
	ItemMilliseconds int64 `json:"item_ms,omitempty"`
	// Finished means that the step is done.
	Finished bool `json:"finished,omitempty"`
}

// PerSecond returns the number of items done per second of work; 0 = unknown.
func (s Step) PerSecond() float64 {
	if s.Milliseconds <= 0 || s.Done == 0 {
		return 0
	}
	return float64(s.Done) * 1000 / float64(s.Milliseconds)
}

// Left estimates how long the remaining items take, without the time between slices. ok is
// false if that is unknown.
func (s Step) Left() (left time.Duration, ok bool) {
	rate := s.PerSecond()
	switch {
	case s.Finished:
		return 0, true
	case rate == 0 || s.Total <= 0:
		return 0, false
	}
	// The time already spent on the current item is subtracted. The rest of that item may take
	// any time.
	items := max(s.Total-s.Done, 0)
	seconds := max(float64(items)/rate-float64(s.ItemMilliseconds)/1000, float64(items-1)/rate, 0)
	return time.Duration(math.Min(seconds, 1e9) * float64(time.Second)), true
}

// Run describes one run of a long job at the time at which it was read.
type Run struct {
	UUID, Class string
	Args        resqued.Args
	Status      Status
	// Queue is the queue of the slice that waits, runs, or was the last.
	Queue string
	// Tenant is the tenant to which the run belongs. Place is its place in the tenant's line: 1
	// = first, 0 = not in line. Only Get sets Place.
	Tenant string
	Place  int
	// Slice is the number of the slice that waits or runs. Slices is the number of ended
	// slices.
	Slice, Slices int
	// Units is the number of units that succeeded, UnitTime their total duration, and Ran the
	// total duration of all slices.
	Units         int64
	UnitTime, Ran time.Duration
	// Created is when the run was enqueued, Begun when its first slice began, Seen when it last
	// reported, and Ended when it ended; zero = not yet.
	Created, Begun, Seen, Ended time.Time
	// Paused is when the run was paused; zero = not paused. While Status is StatusRunning, a
	// unit that had begun before still runs.
	Paused time.Time
	// Deaths is the number of worker processes that died while they ran a slice, Failures how
	// often the function returned an error, both since the run last made progress.
	Deaths, Failures int
	// Rerun means that one more run follows this one.
	Rerun bool
	// Message is the text set by the program. Error is why the run, or its last try, failed.
	// Warning points out a mistake in the program.
	Message, Error, Warning string
	// Refused is how often programs that do not know the class took the waiting slice and gave
	// it back. Warning then says so too.
	Refused int
	// Steps has the progress of the steps that are not within another.
	Steps []Step
	// State is the state that the program has set, as JSON. Only Get sets it.
	State map[string]json.RawMessage
}

func runOf(r longstore.Record) Run {
	at := func(field string) time.Time {
		if n := r.Number(field); n > 0 {
			return time.UnixMilli(n)
		}
		return time.Time{}
	}
	ms := func(field string) time.Duration { return time.Duration(r.Number(field)) * time.Millisecond }
	run := Run{
		UUID: r.UUID, Class: r.Fields["class"], Status: Status(longstore.ShownStatus(r.Fields["status"], r.Fields["paused"] != "")), Queue: r.Fields["queue"],
		Tenant: r.Fields["tenant"], Place: int(r.Place),
		Slice: int(r.Number("slice")), Slices: int(r.Number("slices")), Units: r.Number("units"), UnitTime: ms("unit_ms"), Ran: ms("ran"),
		Created: at("created"), Begun: at("begun"), Seen: at("seen"), Ended: at("ended"), Paused: at("paused"),
		Deaths: int(r.Number("deaths")), Failures: int(r.Number("failures")), Rerun: r.Fields["rerun"] == "1",
		Message: r.Fields["message"], Error: r.Fields["error"], Warning: r.Fields["warning"],
	}
	if run.Refused = int(r.Number("refused")); run.Refused > 0 {
		run.Warning = fmt.Sprintf("no program that has taken its slice knows class %q, the last of %d tries was by %s at %s; one that does has to work queue %q",
			cut(run.Class), run.Refused, cut(r.Fields["refuser"]), at("refused_at").UTC().Format(time.RFC3339), cut(run.Queue))
	}
	_ = json.Unmarshal([]byte(r.Fields["args"]), &run.Args)   // invalid values of another program
	_ = json.Unmarshal([]byte(r.Fields["steps"]), &run.Steps) // do not prevent showing the rest
	for key, value := range r.State {
		if len(key) > len(stateOwn) && key[:len(stateOwn)] == stateOwn {
			if run.State == nil {
				run.State = map[string]json.RawMessage{}
			}
			if !json.Valid([]byte(value)) {
				value = strconv.Quote(value)
			}
			run.State[key[len(stateOwn):]] = json.RawMessage(value)
		}
	}
	return run
}
