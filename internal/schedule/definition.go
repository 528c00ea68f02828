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

// Values of if_running: what a tick does while a job of the schedule has not ended.
const (
	// IfRunningQueue enqueues another job.
	IfRunningQueue = "queue"
	// IfRunningUnique enqueues none while an equal job waits; a running one does not count.
	IfRunningUnique = "unique"
	// IfRunningSkip enqueues none while an equal job waits or runs.
	IfRunningSkip = "skip"
)

// Values of catch_up: what happens to ticks that were not handled in time.
const (
	// CatchUpLast enqueues a job for the last of them.
	CatchUpLast = "last"
	CatchUpNone = "none"
	// CatchUpAll enqueues a job for each, up to maxCatchUp.
	CatchUpAll = "all"
)

// IfRunningValues and CatchUpValues are the allowed values, the default first.
var (
	IfRunningValues = []string{IfRunningQueue, IfRunningUnique, IfRunningSkip}
	CatchUpValues   = []string{CatchUpLast, CatchUpNone, CatchUpAll}
)

// Definition is a job that is enqueued again and again.
type Definition struct {
	Name  string `json:"name"`
	Class string `json:"class"`
	Queue string `json:"queue"`
	// Args is the JSON list of arguments, as in the payload.
	Args        json.RawMessage `json:"args"`
	Description string          `json:"description,omitempty"`

	// Cron is an expression, Every an interval: one of them is set.
	Cron  string `json:"cron,omitempty"`
	Every string `json:"every,omitempty"`
	// FirstIn is the first tick's delay from when the schedule is first seen; empty = the
	// interval.
	FirstIn string `json:"first_in,omitempty"`
	// TimeZone is the zone of the expression; empty = the machine's.
	TimeZone string `json:"timezone,omitempty"`

	IfRunning string `json:"if_running,omitempty"`
	CatchUp   string `json:"catch_up,omitempty"`

	// Stored is the definition in Redis, byte by byte; empty for one of the configuration.
	Stored string `json:"-"`
}

// When returns the schedule's times as written.
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

// Timing returns the schedule's times, or an error that says what is wrong with them.
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

// Check returns an error if anything but the times is wrong.
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

// Arguments turns a JSON value into a list of arguments as resque-scheduler does: a list as it is,
// nothing into none, another value into the only one.
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

// Timing computes the times of a schedule.
type Timing struct {
	spec *spec
	// every is the interval if spec is nil.
	every, first time.Duration
	print        string
}

// Fingerprint differs between expressions, and between time zones with different changes.
func (t Timing) Fingerprint() string { return t.print }

// Period returns the interval, or 0 for an expression.
func (t Timing) Period() time.Duration { return t.every }

// Begin returns the instant after which ticks count for a schedule first seen at now.
func (t Timing) Begin(now time.Time) time.Time {
	if t.every > 0 && t.first > 0 {
		return now.Add(t.first - t.every)
	}
	return now
}
