package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// Where a schedule comes from.
const (
	fromConfig = "configuration"
	fromClass  = "program" // a class of this program has it
	fromRedis  = "redis"   // resque-scheduler keeps it there
	fromOthers = "others"  // a daemon with another configuration has, or had it
)

// cronView is a schedule as people see it.
type cronView struct {
	Name string `json:"name"`
	// When is the expression, or "every …".
	When string `json:"when"`
	// Next is null when nobody enqueues its jobs.
	Next *time.Time `json:"next"`
	// Last is the tick that was seen to last, LastOutcome what came of it.
	Last        *time.Time      `json:"last"`
	LastOutcome *string         `json:"last_outcome"`
	Class       string          `json:"class"`
	Args        json.RawMessage `json:"args"`
	Queue       string          `json:"queue"`
	IfRunning   string          `json:"if_running"`
	CatchUp     string          `json:"catch_up"`
	Description string          `json:"description,omitempty"`
	// Source is configuration, program, redis or others.
	Source string `json:"source"`
	// Invalid says why its jobs are not enqueued.
	Invalid string `json:"invalid,omitempty"`

	schedule schedule.Definition
	seen     time.Time
}

// cronViews returns the schedules of the configuration, those that are kept in Redis and
// those that other daemons have, by name, and the server's time.
func (a *app) cronViews(ctx context.Context, s *store.Store, cfg config.Config) ([]*cronView, time.Time, error) {
	known, now, err := s.CronViews(ctx)
	if err != nil {
		return nil, now, err
	}
	all := map[string]*cronView{}
	for name, v := range known {
		var defined schedule.Definition
		switch {
		case v.Stored != "":
			defined, err = schedule.ParseStored(name, v.Stored, a.cronDefaults(cfg))
			defined.Name = name
			all[name] = viewCron(defined, fromRedis, err)
			if !cfg.PersistentSchedules && err == nil {
				all[name].Invalid = "persistent_schedules is off"
			}
		case json.Unmarshal([]byte(v.Shown), &defined) == nil && defined.Name == name:
			all[name] = viewCron(defined, fromOthers, nil)
		}
	}
	for source, schedules := range map[string][]schedule.Definition{fromConfig: cfg.Schedules, fromClass: a.classSchedules(cfg)} {
		for _, defined := range schedules {
			if known[defined.Name].Stored == "" || !cfg.PersistentSchedules {
				all[defined.Name] = viewCron(defined, source, nil)
			}
		}
	}
	views := make([]*cronView, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		views = append(views, all[name])
		all[name].stands(known[name].CronRecord, now)
	}
	return views, now, nil
}

func viewCron(s schedule.Definition, source string, err error) *cronView {
	v := &cronView{
		Name: s.Name, When: s.When(), Class: s.Class, Args: s.Args, Queue: s.Queue, Description: s.Description,
		IfRunning: s.IfRunning, CatchUp: s.CatchUp, Source: source, schedule: s,
	}
	if s.Cron == "" && s.Every == "" {
		v.When = ""
	}
	if len(v.Args) == 0 {
		v.Args = json.RawMessage("[]")
	}
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

// stands adds what the record of a schedule says.
func (v *cronView) stands(r store.CronRecord, now time.Time) {
	if !r.Tick.IsZero() {
		v.Last, v.LastOutcome, v.seen = &r.Tick, &r.Outcome, r.Seen
	}
	timing, err := v.schedule.Timing()
	if err != nil || v.Invalid != "" {
		return
	}
	from := now
	if r.Fingerprint == timing.Fingerprint() && timing.Period() > 0 {
		// An interval counts from what was; if that is long ago nobody keeps it.
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

// addCron adds schedules to a listing; see listSchedule for its columns.
func addCron(l *listing, views []*cronView, now time.Time) {
	for _, v := range views {
		next, due, last := "", "", ""
		if v.Next != nil {
			next, due = "now", v.Next.Format(time.RFC3339)
			if v.Next.After(now) {
				next = age(v.Next.Sub(now))
			}
		}
		if v.Last != nil {
			last = outcomes[*v.LastOutcome] + " " + since(*v.Last, now)
		}
		l.add(v.Name, v, v.Name, v.When, next, last, v.Class, v.Queue, string(v.Args), due, v.Invalid)
	}
}

// outcomes are what people call those of a tick.
var outcomes = map[string]string{
	store.TickEnqueued: "ok", store.TickSkipped: "skipped", store.TickDuplicate: "duplicate", store.TickMissed: "missed",
}

// scheduleNames are those that Redis knows of.
func scheduleNames(ctx context.Context, s *store.Store) ([]string, error) {
	views, _, err := s.CronViews(ctx)
	return slices.Sorted(maps.Keys(views)), err
}

// pickSchedules returns the named schedules.
func (a *app) pickSchedules(views []*cronView, names []string) ([]*cronView, error) {
	var picked []*cronView
	known := make([]string, len(views))
	for i, v := range views {
		known[i] = v.Name
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, notFound("schedule", name, known, a.name+" schedule")
		}
		if !slices.Contains(picked, views[i]) {
			picked = append(picked, views[i])
		}
	}
	return picked, nil
}

// runSchedules enqueues jobs as the ticks of their schedules do.
func (a *app) runSchedules(c *cobra.Command, names []string) error {
	var picked []*cronView
	err := a.withConfig(c, func(ctx context.Context, s *store.Store, cfg config.Config) error {
		views, _, err := a.cronViews(ctx, s, cfg)
		if err == nil {
			picked, err = a.pickSchedules(views, names)
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, jobs *client.Client) error {
		l := &listing{}
		var text strings.Builder
		for _, v := range picked {
			if v.Class == "" || v.Queue == "" {
				return fmt.Errorf("schedule %q: %s", v.Name, v.Invalid)
			}
			payload, err := wire.EncodePayload(v.Class, v.Args)
			if err != nil {
				return fmt.Errorf("schedule %q: %w", v.Name, err)
			}
			res, err := jobs.EnqueueRaw(ctx, payload, client.Queue(v.Queue))
			if err != nil {
				return fmt.Errorf("schedule %q: %w", v.Name, err)
			}
			l.names = append(l.names, v.Name)
			l.items = append(l.items, map[string]string{"name": v.Name, "queue": res.Queue, "status": string(res.Status)})
			fmt.Fprintf(&text, "%s %s to %s\n", res.Status, jobText(v.Class, string(v.Args)), wire.Printable(res.Queue, 0))
		}
		return a.tellSchedules(l, text.String())
	})
}

func (a *app) removeSchedules(c *cobra.Command, names []string) error {
	return a.withConfig(c, func(ctx context.Context, s *store.Store, cfg config.Config) error {
		views, _, err := a.cronViews(ctx, s, cfg)
		if err != nil {
			return err
		}
		picked, err := a.pickSchedules(views, names)
		if err != nil {
			return err
		}
		for _, v := range picked {
			if v.Source == fromConfig || v.Source == fromClass {
				return &problem{
					exit: exitFailed, code: "configured", lines: []string{fmt.Sprintf("schedule %q is in the %s", v.Name, v.Source)},
					hint: "Remove it there, then let the daemon read it again: HUP", cause: errors.ErrUnsupported,
				}
			}
		}
		l := &listing{}
		var text strings.Builder
		for _, v := range picked {
			if _, err := s.ForgetSchedule(ctx, v.Name); err != nil {
				return err
			}
			l.names = append(l.names, v.Name)
			l.items = append(l.items, map[string]string{"name": v.Name, "status": "removed"})
			fmt.Fprintf(&text, "removed %s\n", wire.Printable(v.Name, 0))
		}
		return a.tellSchedules(l, text.String())
	})
}

func (a *app) tellSchedules(l *listing, text string) error {
	switch {
	case a.flags.output == outJSON || a.flags.output == outName:
		return a.print(l)
	case a.flags.quiet:
		return nil
	}
	return a.printText(text)
}
