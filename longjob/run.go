package longjob

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
)

// Status is where a run is in its life.
type Status string

// The statuses. The last four are final.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	// Superseded: a newer run of the same class and arguments has taken its place.
	Superseded Status = "superseded"
)

// Over reports whether the status is final.
func (s Status) Over() bool { return s != Queued && s != Running }

// Step is the progress of a WorkOnce, WorkEach or WorkTree that is not within another.
type Step struct {
	Name string `json:"name"`
	// Done is how many of Total items are done; a Total of 0 is unknown.
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
	// Milliseconds is how long slices have worked on what is done, Item how long on the
	// item that is next.
	Milliseconds int64 `json:"ms"`
	Item         int64 `json:"item_ms,omitempty"`
	Finished     bool  `json:"finished,omitempty"`
}

// PerSecond is how many items are done in a second of work; 0 = not known.
func (s Step) PerSecond() float64 {
	if s.Milliseconds <= 0 || s.Done == 0 {
		return 0
	}
	return float64(s.Done) * 1000 / float64(s.Milliseconds)
}

// Left is how long the rest takes if it goes on as before, without the time between
// slices; ok is false if that is not known.
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
	seconds := max(float64(items)/rate-float64(s.Item)/1000, float64(items-1)/rate, 0)
	return time.Duration(math.Min(seconds, 1e9) * float64(time.Second)), true
}

// Run is one run of a long job, as it was when somebody looked.
type Run struct {
	UUID, Class string
	Args        resqued.Args
	Status      Status
	// Queue is where the next slice goes or has gone.
	Queue string
	// Tenant is whose run it is. Place is where it stands in the tenant's line, 1 = first,
	// 0 = it does not stand there; only Get tells.
	Tenant string
	Place  int
	// Slice is the number of the slice that waits or runs, Slices how many have ended.
	Slice, Slices int
	// Units is how many units have ended well, UnitTime how long they took, and Ran how
	// long all slices did.
	Units         int64
	UnitTime, Ran time.Duration
	// Created is when the run was enqueued, Begun when its first slice began, Seen when
	// it last gave a sign of life, Ended when it ended. Zero = not yet.
	Created, Begun, Seen, Ended time.Time
	// Deaths is how many worker processes have died with it since it last made progress,
	// Failures how often its function has failed since then.
	Deaths, Failures int
	// Rerun: one more run follows.
	Rerun bool
	// Message is the program's own; Error is why the run, or its last try, has failed;
	// Warning is about a mistake in the program.
	Message, Error, Warning string
	Steps                   []Step
	// State is what the run remembers, as JSON; only Get tells.
	State map[string]json.RawMessage
}

func runOf(r longstore.LongRecord) Run {
	at := func(field string) time.Time {
		if n := r.Number(field); n > 0 {
			return time.UnixMilli(n)
		}
		return time.Time{}
	}
	ms := func(field string) time.Duration { return time.Duration(r.Number(field)) * time.Millisecond }
	run := Run{
		UUID: r.UUID, Class: r.Fields["class"], Status: Status(r.Fields["status"]), Queue: r.Fields["queue"],
		Tenant: r.Fields["tenant"], Place: int(r.Place),
		Slice: int(r.Number("slice")), Slices: int(r.Number("slices")), Units: r.Number("units"), UnitTime: ms("unit_ms"), Ran: ms("ran"),
		Created: at("created"), Begun: at("begun"), Seen: at("seen"), Ended: at("ended"),
		Deaths: int(r.Number("deaths")), Failures: int(r.Number("failures")), Rerun: r.Fields["rerun"] == "1",
		Message: r.Fields["message"], Error: r.Fields["error"], Warning: r.Fields["warning"],
	}
	_ = json.Unmarshal([]byte(r.Fields["args"]), &run.Args)   // what somebody else wrote there is no reason
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
