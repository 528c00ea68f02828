package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/resqued/resqued/longjob"
)

// longView is a run of a long job.
type longView struct {
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
	Deaths  int                        `json:"deaths"`
	Failed  int                        `json:"failures"`
	Rerun   bool                       `json:"rerun"`
	Message string                     `json:"message"`
	Error   string                     `json:"error"`
	Warning string                     `json:"warning"`
	State   map[string]json.RawMessage `json:"state,omitempty"`
}

func viewLong(r longjob.Run) longView {
	v := longView{
		UUID: r.UUID, Class: r.Class, Args: json.RawMessage(r.Args.String()), Status: r.Status, Queue: r.Queue, Slice: r.Slice, Slices: r.Slices,
		Units: r.Units, RanMS: r.Ran.Milliseconds(), UnitMS: r.UnitTime.Milliseconds(), Steps: r.Steps, Deaths: r.Deaths, Failed: r.Failures, Rerun: r.Rerun,
		Tenant: r.Tenant, Place: r.Place, Message: r.Message, Error: r.Error, Warning: r.Warning, State: r.State,
		Created: instant(r.Created), Begun: instant(r.Begun), Seen: instant(r.Seen), Ended: instant(r.Ended),
	}
	if v.Steps == nil {
		v.Steps = []longjob.Step{}
	}
	if step, ok := v.step(); ok && !step.Finished && !r.Status.Over() {
		if left, ok := step.Left(); ok {
			seconds := left.Seconds()
			v.ETA = &seconds
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

// step is the one that is under way, or was the last.
func (v *longView) step() (step longjob.Step, ok bool) {
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

// progress is that step in words, eta how long the rest of it takes.
func (v *longView) progress() (text, rate, eta string) {
	step, ok := v.step()
	if !ok {
		return "", "", ""
	}
	text = fmt.Sprintf("%s %d", step.Name, step.Done)
	if step.Total > 0 {
		text += fmt.Sprintf("/%d", step.Total)
	}
	if n := step.PerSecond(); n > 0 {
		rate = speed(n)
	}
	if v.ETA != nil {
		eta = longLeft(time.Duration(*v.ETA * float64(time.Second)))
	}
	return text, rate, eta
}

// speed is how many items are done in a second; of slow ones how many in a minute or an hour.
func speed(perSecond float64) string {
	switch {
	case perSecond < 1./60:
		return fmt.Sprintf("%.1f/h", 3600*perSecond)
	case perSecond < 1:
		return fmt.Sprintf("%.1f/min", 60*perSecond)
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// longLeft is age in two units: of two hours it matters how many minutes there are.
func longLeft(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute || d >= 48*time.Hour && d%(24*time.Hour) < time.Hour:
		return age(d)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

func statusColour(status string) string {
	switch longjob.Status(status) {
	case longjob.Failed:
		return red
	case longjob.Completed:
		return green
	case longjob.Cancelled, longjob.Superseded:
		return yellow
	}
	return ""
}
