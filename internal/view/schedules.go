package view

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// Sources of schedules.
const (
	FromConfig = "configuration"
	FromClass  = "program" // a class of this program
	FromRedis  = "redis"   // kept there by resque-scheduler
	FromOthers = "others"  // a daemon with another configuration has or had it
)

// overdue is how late a tick may be handled.
const overdue = 2 * time.Minute

// Schedule enqueues jobs at fixed times or intervals.
type Schedule struct {
	Name string `json:"name"`
	// When is the expression, or "every …".
	When string `json:"when"`
	// Next is null if no daemon enqueues its jobs.
	Next *time.Time `json:"next"`
	// Last is the last tick, LastOutcome its outcome.
	Last        *time.Time `json:"last"`
	LastOutcome *string    `json:"last_outcome"`
	// Overdue is the first tick that daemons should have handled by now; null = none.
	Overdue     *time.Time      `json:"overdue,omitempty"`
	Class       string          `json:"class"`
	Args        json.RawMessage `json:"args"`
	Queue       string          `json:"queue"`
	IfRunning   string          `json:"if_running"`
	CatchUp     string          `json:"catch_up"`
	Description string          `json:"description,omitempty"`
	// Source is configuration, program, redis or others.
	Source string `json:"source"`
	// Invalid is why its jobs are not enqueued.
	Invalid string `json:"invalid,omitempty"`

	schedule schedule.Definition
	// pushed are the arguments as they are enqueued.
	pushed json.RawMessage
}

// Fits reports whether a filter selects the job of the schedule, with its next tick as the time.
func (v *Schedule) Fits(m *filter.Matcher) bool {
	payload, _ := wire.EncodePayload(v.Class, v.pushed) // not a job, if it is invalid
	j := filter.Job{Queue: v.Queue, Payload: payload}
	if v.Next != nil {
		j.At = *v.Next
	}
	_, _, ok := m.Job(j)
	return ok
}

// Ticks yields the coming ticks before a time, in the time zone of the schedule.
func (v *Schedule) Ticks(before time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		timing, err := v.schedule.Timing()
		if err != nil || v.Next == nil {
			return
		}
		for at := *v.Next; !at.IsZero() && at.Before(before) && yield(at); at = timing.Next(at) {
			continue
		}
	}
}

// Pushed returns the arguments as they are enqueued, hidden or not.
func (v *Schedule) Pushed() json.RawMessage { return v.pushed }

// ScheduleSources are the schedules outside Redis, and how to read those in it.
type ScheduleSources struct {
	// Configured come from the configuration, Program from the program's classes.
	Configured, Program []schedule.Definition
	// Stored says that resque-scheduler's schedules in Redis are used (persistent_schedules).
	Stored bool
	// Defaults complete stored schedules.
	Defaults schedule.Defaults
}

// Schedules returns all schedules (configured, in Redis, of other daemons) by name, and the
// server's time. If only some of Redis's data could not be read, it returns schedules with an
// error.
func Schedules(ctx context.Context, s *store.Store, sources ScheduleSources) ([]*Schedule, time.Time, error) {
	known, now, err := s.CronViews(ctx)
	if known == nil {
		return nil, now, err
	}
	all := map[string]*Schedule{}
	for name, v := range known {
		var defined schedule.Definition
		switch {
		case v.Stored != "":
			defined, invalid := schedule.ParseStored(name, v.Stored, sources.Defaults)
			defined.Name = name
			all[name] = newSchedule(redact.From(ctx), defined, FromRedis, invalid)
			if !sources.Stored && invalid == nil {
				all[name].Invalid = "persistent_schedules is off"
			}
		case json.Unmarshal([]byte(v.Shown), &defined) == nil && defined.Name == name:
			all[name] = newSchedule(redact.From(ctx), defined, FromOthers, nil)
		}
	}
	for source, schedules := range map[string][]schedule.Definition{FromConfig: sources.Configured, FromClass: sources.Program} {
		for _, defined := range schedules {
			if known[defined.Name].Stored == "" || !sources.Stored {
				all[defined.Name] = newSchedule(redact.From(ctx), defined, source, nil)
			}
		}
	}
	views := make([]*Schedule, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		views = append(views, all[name])
		all[name].addRecord(known[name].CronRecord, now)
	}
	return views, now, err
}

func newSchedule(rules *redact.Rules, s schedule.Definition, source string, err error) *Schedule {
	v := &Schedule{
		Name: s.Name, When: s.When(), Class: s.Class, Args: s.Args, Queue: s.Queue, Description: s.Description,
		IfRunning: s.IfRunning, CatchUp: s.CatchUp, Source: source, schedule: s,
	}
	if s.Cron == "" && s.Every == "" {
		v.When = ""
	}
	if len(v.Args) == 0 {
		v.Args = json.RawMessage("[]")
	}
	v.pushed, v.Args = v.Args, rules.Args(v.Class, v.Args)
	if v.IfRunning == "" {
		v.IfRunning = schedule.IfRunningValues[0]
	}
	if v.CatchUp == "" {
		v.CatchUp = schedule.CatchUpValues[0]
	}
	if err != nil {
		v.Invalid = err.Error()
	}
	return v
}

func (v *Schedule) addRecord(r store.CronRecord, now time.Time) {
	if !r.Tick.IsZero() {
		v.Last, v.LastOutcome = &r.Tick, &r.Outcome
	}
	timing, err := v.schedule.Timing()
	if err != nil || v.Invalid != "" {
		return
	}
	from := now
	if r.Fingerprint == timing.Fingerprint() {
		if due := timing.Next(r.From); !due.IsZero() && now.Sub(due) > overdue {
			v.Overdue = &due
		}
	}
	if r.Fingerprint == timing.Fingerprint() && timing.Period() > 0 {
		// An interval counts from its last tick. If that is long ago, no daemon has the schedule.
		for from = r.From; timing.Next(from).Before(now.Add(-schedule.Grace)); from = from.Add(timing.Period()) {
			if now.Sub(from) > 1000*timing.Period() {
				from = now
				break
			}
		}
	}
	if next := timing.Next(from); !next.IsZero() {
		v.Next = &next
	}
}

// FindSchedules returns the named schedules, each once, or a NotFoundError.
func FindSchedules(views []*Schedule, names []string) ([]*Schedule, error) {
	var once []string
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return exactly(views, once, "schedule", func(v *Schedule) string { return v.Name })
}
