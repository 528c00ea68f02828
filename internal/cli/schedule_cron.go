package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (s *session) schedules(ctx context.Context) ([]*view.Schedule, time.Time, error) {
	return view.Schedules(ctx, s.Store, scheduleSources(s.a.program(), s.loaded))
}

func scheduleSources(p app.Program, r *config.Resolved) view.ScheduleSources {
	return view.ScheduleSources{
		Configured: r.Schedules, Program: p.ClassSchedules(r.Config), Stored: r.PersistentSchedules, Defaults: p.ScheduleDefaults(r.Config),
	}
}

// addSchedules adds schedules to a listing; see listSchedule for its columns.
func addSchedules(l *listing, views []*view.Schedule, now time.Time) {
	for _, v := range views {
		next, due, last := "", "", ""
		if v.Next != nil {
			next, due = until(*v.Next, now), v.Next.Format(time.RFC3339)
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

// runSchedules enqueues jobs as the ticks of their schedules do.
func runSchedules(ctx context.Context, s *session, picked []*view.Schedule) error {
	jobs, err := s.client()
	if err != nil {
		return err
	}
	l, enqueued := &listing{}, pushed{}
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
		s.did(store.EventRan, "schedule "+v.Name, v.Class, 1)
		enqueued.add(res.Queue, v.Class)
		l.did(v.Name, map[string]string{"name": v.Name, "queue": res.Queue, "status": string(res.Status)},
			"%s %s to %s", res.Status, jobText(v.Class, string(v.Args)), wire.Printable(res.Queue, 0))
	}
	by := s.a.workedBy(ctx, s.loaded.Config, enqueued)
	defer s.a.warnUnworked(by)
	return s.tell(l)
}

func removeSchedules(ctx context.Context, s *session, picked []*view.Schedule) error {
	for _, v := range picked {
		if v.Source == view.FromConfig || v.Source == view.FromClass {
			return &problem{
				exit: exitFailed, code: "configured", lines: []string{fmt.Sprintf("schedule %q is in the %s", v.Name, v.Source)},
				hint: "Remove it there, then let the daemon read it again: HUP", cause: errors.ErrUnsupported,
			}
		}
	}
	l := &listing{}
	for _, v := range picked {
		if _, err := s.ForgetSchedule(ctx, v.Name); err != nil {
			return err
		}
		s.did(store.EventRemoved, "schedule "+v.Name, "", 1)
		l.did(v.Name, map[string]string{"name": v.Name, "status": "removed"}, "removed %s", wire.Printable(v.Name, 0))
	}
	return s.tell(l)
}
