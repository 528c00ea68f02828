package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// What becomes of a tick while a job of the schedule has not come to its end.
const (
	// Queue enqueues another one.
	Queue = "queue"
	// Unique enqueues none while an equal one waits in the queue; one that runs does
	// not count.
	Unique = "unique"
	// Skip enqueues none while an equal one waits or runs.
	Skip = "skip"
)

// What becomes of ticks that nobody has seen to in time.
const (
	// CatchUpLast makes up for the last one of them.
	CatchUpLast = "last"
	// CatchUpNone lets them be.
	CatchUpNone = "none"
	// CatchUpAll makes up for each of them, up to maxCatchUp.
	CatchUpAll = "all"
)

// IfRunningValues and CatchUpValues are the values that there are, the default first.
var (
	IfRunningValues = []string{Queue, Unique, Skip}
	CatchUpValues   = []string{CatchUpLast, CatchUpNone, CatchUpAll}
)

// Definition is a job that is enqueued again and again.
type Definition struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	Queue string `json:"queue"`
	// Args is the list of arguments, as it stands in the payload.
	Args        json.RawMessage `json:"args"`
	Description string          `json:"description,omitempty"`

	// Cron is an expression, or Every an interval: one of them is given.
	Cron  string `json:"cron,omitempty"`
	Every string `json:"every,omitempty"`
	// FirstIn is when an interval ticks first, counted from when the schedule is seen
	// first; empty = after the interval.
	FirstIn string `json:"first_in,omitempty"`
	// TimeZone is the zone of the expression; empty = that of the machine.
	TimeZone string `json:"timezone,omitempty"`

	IfRunning string `json:"if_running,omitempty"`
	CatchUp   string `json:"catch_up,omitempty"`

	// Stored is the definition byte by byte as it stands in Redis; empty for one of the
	// configuration.
	Stored string `json:"-"`
}

// When says when the schedule ticks, as it was written.
func (s Definition) When() string {
	when := s.Cron
	if when == "" {
		when = "every " + strings.TrimPrefix(s.Every, "every ")
	}
	if s.TimeZone != "" {
		when += " " + s.TimeZone
	}
	return when
}

// Timing returns the times of the schedule. Its error says what is wrong with them.
func (s Definition) Timing() (Timing, error) {
	switch {
	case s.Cron != "" && s.Every != "":
		return Timing{}, errors.New("has both cron and every; keep one of them")
	case s.Cron != "" && s.FirstIn != "":
		return Timing{}, errors.New("first_in belongs to every, not to cron")
	case s.Cron != "":
		return ParseCron(s.Cron, s.TimeZone)
	case s.Every != "" && s.TimeZone != "":
		return Timing{}, errors.New("timezone belongs to cron: an interval is the same everywhere")
	case s.Every != "":
		return ParseEvery(s.Every, s.FirstIn)
	}
	return Timing{}, errors.New(`says nothing of when; write cron: "0 2 * * *" or every: 30m`)
}

// Check returns what is wrong with a schedule besides its times.
func (s Definition) Check() error {
	switch {
	case s.Class == "":
		return errors.New("has no class")
	case s.Queue == "":
		return fmt.Errorf("has no queue, and class %s names none", s.Class)
	case !utf8.ValidString(s.Class+s.Queue+s.Name) || strings.ContainsFunc(s.Class+s.Queue+s.Name, unicode.IsControl):
		return errors.New("name, class and queue must be plain text")
	case s.IfRunning != "" && !slices.Contains(IfRunningValues, s.IfRunning):
		return fmt.Errorf("if_running %q is not known, one of %s", s.IfRunning, strings.Join(IfRunningValues, ", "))
	case s.CatchUp != "" && !slices.Contains(CatchUpValues, s.CatchUp):
		return fmt.Errorf("catch_up %q is not known, one of %s", s.CatchUp, strings.Join(CatchUpValues, ", "))
	}
	return nil
}

// Arguments turns one JSON value into a list of arguments, as resque-scheduler does: a
// list is the arguments, nothing none, and anything else the only one.
func Arguments(value json.RawMessage) (json.RawMessage, error) {
	if len(value) == 0 {
		return json.RawMessage("[]"), nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	switch text := b.String(); {
	case text == "null":
		return json.RawMessage("[]"), nil
	case text[0] == '[':
		return json.RawMessage(text), nil
	default:
		return json.RawMessage("[" + text + "]"), nil
	}
}

// Timing are the times of a schedule.
type Timing struct {
	spec *spec
	// every is the interval of a schedule that has no spec.
	every, first time.Duration
	print        string
}

// Fingerprint differs between timings: of different expressions, and of time zones with
// different rules.
func (t Timing) Fingerprint() string { return t.print }

// Period is the interval, or 0 for an expression.
func (t Timing) Period() time.Duration { return t.every }

// Begin is the instant from which the ticks count of a schedule that is seen first at
// now: what comes before is no tick.
func (t Timing) Begin(now time.Time) time.Time {
	if t.every > 0 && t.first > 0 {
		return now.Add(t.first - t.every)
	}
	return now
}
