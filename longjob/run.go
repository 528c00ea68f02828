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
	// StatusQueued: the next slice waits.
	StatusQueued Status = "queued"
	// StatusRunning: a slice runs.
	StatusRunning Status = "running"
	// StatusPaused: the run was paused by Pause, and no slice of it runs.
	StatusPaused Status = "paused"
	// StatusCompleted: the function returned nil.
	StatusCompleted Status = "completed"
	// StatusFailed: the function returned an error too often, or too many worker processes died.
	StatusFailed Status = "failed"
	// StatusCancelled: the run was ended by Cancel.
	StatusCancelled Status = "cancelled"
	// StatusSuperseded: a newer run of the same class and arguments has taken its place.
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
	// Done is the number of items that are done, Total that of all items; 0 = unknown.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	// Milliseconds is the time that was spent on the items that are done,
	// ItemMilliseconds that on the item that is under way.
	Milliseconds     int64 `json:"ms"`
	ItemMilliseconds int64 `json:"item_ms,omitempty"`
	// Finished: the step is done.
	Finished bool `json:"finished,omitempty"`
}

// PerSecond returns the number of items that are done in a second of work; 0 = unknown.
func (s Step) PerSecond() float64 {
	if s.Milliseconds <= 0 || s.Done == 0 {
		return 0
	}
	return float64(s.Done) * 1000 / float64(s.Milliseconds)
}

// Left estimates how long the remaining items take, without the time between slices. ok is false
// if that is unknown.
func (s Step) Left() (left time.Duration, ok bool) {
	rate := s.PerSecond()
	switch {
	case s.Finished:
		return 0, true
	case rate == 0 || s.Total <= 0:
		return 0, false
	}
	// What the next item has taken is no more to come, but the rest of it may take any time.
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
	// Tenant is the tenant to whom the run belongs. Place is its place in the tenant's line:
	// 1 = first, 0 = it does not stand in line. Only Get sets Place.
	Tenant string
	Place  int
	// Slice is the number of the slice that waits or runs. Slices is the number of slices
	// that have ended.
	Slice, Slices int
	// Units is the number of units that succeeded, UnitTime is how long they took together,
	// and Ran is how long all slices took together.
	Units         int64
	UnitTime, Ran time.Duration
	// Created is when the run was enqueued, Begun when its first slice began, Seen when it
	// last reported, and Ended when it ended. A time is zero if that has not happened.
	Created, Begun, Seen, Ended time.Time
	// Paused is when the run was paused; zero = it is not. As long as its Status is
	// StatusRunning, a unit that had begun before runs still.
	Paused time.Time
	// Deaths is the number of worker processes that died while they ran a slice, Failures is
	// how often the function returned an error, both since the run last made progress.
	Deaths, Failures int
	// Rerun: one more run follows this one.
	Rerun bool
	// Message is the text set by the program. Error is why the run, or its last try, failed.
	// Warning points out a mistake in the program.
	Message, Error, Warning string
	// Refused is how often the slice that waits was taken by programs that do not know the
	// class, and given back; Warning says so, too.
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
	_ = json.Unmarshal([]byte(r.Fields["args"]), &run.Args)   // a wrong value of another program is not a reason
	_ = json.Unmarshal([]byte(r.Fields["steps"]), &run.Steps) // not to show the rest
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
