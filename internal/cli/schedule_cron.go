package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) schedules(ctx context.Context, s *store.Store, cfg config.Config) ([]*view.Schedule, time.Time, error) {
	p := a.program()
	return view.Schedules(ctx, s, view.ScheduleSources{
		Configured: cfg.Schedules, Program: p.ClassSchedules(cfg), Stored: cfg.PersistentSchedules, Defaults: p.ScheduleDefaults(cfg),
	})
}

// addSchedules adds schedules to a listing; see listSchedule for its columns.
func addSchedules(l *listing, views []*view.Schedule, now time.Time) {
	for _, v := range views {
		next, due, last := "", "", ""
		if v.Next != nil {
			next, due = "now", v.Next.Format(time.RFC3339)
			if v.Next.After(now) {
				next = view.Age(v.Next.Sub(now))
			}
		}
		if v.Last != nil {
			last = outcomes[*v.LastOutcome] + " " + view.Since(*v.Last, now)
		}
		l.add(v.Name, v, v.Name, v.When, next, last, v.Class, v.Queue, string(v.Args), due, v.Invalid)
	}
}

// outcomes are the words for the outcomes of a tick.
var outcomes = map[string]string{
	store.TickEnqueued: "ok", store.TickSkipped: "skipped", store.TickDuplicate: "duplicate", store.TickMissed: "missed",
}

func scheduleNames(ctx context.Context, s *store.Store) ([]string, error) {
	views, _, err := s.CronViews(ctx)
	return slices.Sorted(maps.Keys(views)), err
}

func (a *cli) pickSchedules(views []*view.Schedule, names []string) ([]*view.Schedule, error) {
	picked, err := view.FindSchedules(views, names)
	return picked, lookup(err, a.again()+" schedule", nil)
}

// runSchedules enqueues jobs as the ticks of their schedules do.
func (a *cli) runSchedules(c *cobra.Command, names []string) error {
	var picked []*view.Schedule
	err := a.withConfig(c, func(ctx context.Context, s *store.Store, cfg config.Config) error {
		views, _, err := a.schedules(ctx, s, cfg)
		if err == nil {
			picked, err = a.pickSchedules(views, names)
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, jobs *client.Client, cfg config.Config) error {
		l := &listing{}
		var text strings.Builder
		enqueued := pushed{}
		for _, v := range picked {
			if v.Class == "" || v.Queue == "" {
				return fmt.Errorf("schedule %q: %s", v.Name, v.Invalid)
			}
			payload, err := wire.EncodePayload(v.Class, v.Pushed())
			if err != nil {
				return fmt.Errorf("schedule %q: %w", v.Name, err)
			}
			res, err := jobs.EnqueueRaw(ctx, payload, client.Queue(v.Queue))
			if err != nil {
				return fmt.Errorf("schedule %q: %w", v.Name, err)
			}
			a.did(store.EventRan, "schedule "+v.Name, v.Class, 1)
			enqueued.add(res.Queue, v.Class)
			l.names = append(l.names, v.Name)
			l.items = append(l.items, map[string]string{"name": v.Name, "queue": res.Queue, "status": string(res.Status)})
			fmt.Fprintf(&text, "%s %s to %s\n", res.Status, jobText(v.Class, string(v.Args)), wire.Printable(res.Queue, 0))
		}
		by := a.workedBy(ctx, cfg, enqueued)
		defer a.warnUnworked(by)
		return a.tellSchedules(l, text.String())
	})
}

func (a *cli) removeSchedules(c *cobra.Command, names []string) error {
	return a.withConfig(c, func(ctx context.Context, s *store.Store, cfg config.Config) error {
		views, _, err := a.schedules(ctx, s, cfg)
		if err != nil {
			return err
		}
		picked, err := a.pickSchedules(views, names)
		if err != nil {
			return err
		}
		for _, v := range picked {
			if v.Source == view.FromConfig || v.Source == view.FromClass {
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
			a.did(store.EventRemoved, "schedule "+v.Name, "", 1)
			l.names = append(l.names, v.Name)
			l.items = append(l.items, map[string]string{"name": v.Name, "status": "removed"})
			fmt.Fprintf(&text, "removed %s\n", wire.Printable(v.Name, 0))
		}
		return a.tellSchedules(l, text.String())
	})
}

func (a *cli) tellSchedules(l *listing, text string) error {
	switch {
	case !a.forPeople():
		return a.print(l)
	case a.flags.quiet:
		return nil
	}
	return a.printText(text)
}
