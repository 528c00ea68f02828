package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const scheduleLimit = 100

func (a *cli) scheduleCommand() *cobra.Command {
	var o filterFlags
	return a.lists(verb{
		use: "schedule", kind: shows, short: "list, run or remove schedules and delayed jobs",
		long: `List schedules, then delayed jobs, the next ones first. Schedules come from the
configuration, from resque-scheduler's keys in Redis, and from daemons with
another configuration. NEXT is when the next tick comes, LAST the result and
time of the last one:

  ok         its job was enqueued
  skipped    not enqueued: the previous one had not ended (if_running)
  duplicate  not enqueued: an equal one waited in its unique queue
  missed     not enqueued: no daemon ran then (catch_up)

Delayed jobs run once: they were enqueued with --in or --at, by this program or
resque-scheduler, or asked to run again later.`,
		example: "schedule -c resqued.yaml\nschedule --class Mail\nschedule run nightly\nschedule rm 0af6af819782",
		flags: func(f *flagSet) {
			o.add(f, filter.Delayed)
			f.limit(&o.Limit, scheduleLimit, 1, "most delayed jobs, next first")
		},
		run: func(ctx context.Context, s *session, _ []string) error { return listSchedule(ctx, s, o) },
	}, "list schedules and delayed jobs (default)", a.scheduleShowCommand(), a.scheduleNextCommand(), a.editScheduleCommand(true), a.editScheduleCommand(false))
}

func listSchedule(ctx context.Context, s *session, o filterFlags) error {
	m, err := o.matcher(ctx)
	if err != nil {
		return err
	}
	schedules, now, err := s.schedules(ctx)
	if err != nil {
		return err
	}
	schedules = slices.DeleteFunc(schedules, func(v *view.Schedule) bool {
		return !v.Fits(m)
	})
	jobs, next, err := view.Delayed(ctx, s.Store, m, store.DelayedPlace{}, o.Limit)
	if err != nil {
		return err
	}
	l := newListing("NAME, WHEN, >NEXT, >LAST, CLASS, QUEUE, +ARGS, +DUE, +PROBLEM")
	l.partial = next != ""
	for _, v := range schedules {
		next, due, last := "", "", ""
		if v.Next != nil {
			next, due = until(*v.Next, now), v.Next.Format(time.RFC3339)
		}
		if v.Last != nil {
			last = outcomes[*v.LastOutcome] + " " + view.Since(*v.Last, now)
		}
		l.add(v.Name, v, v.Name, v.When, next, last, v.Class, v.Queue, string(v.Args), due, v.Invalid)
	}
	for _, v := range jobs {
		l.add(v.Name, v, v.Name, v.When, until(*v.Next, now), "", v.Class, v.Queue, string(v.Args), v.Next.Format(time.RFC3339), v.Invalid)
	}
	if s.forPeople() {
		switch {
		case len(jobs) == 0 && len(schedules) == 0:
			s.note("no schedules, and nothing waits for its time: see docs/cron.md and docs/schedule.md")
		case next != "":
			s.note("only the next %d delayed jobs are shown; see --limit", o.Limit)
		}
	}
	return s.print(l)
}

// scheduleShowCommand makes "schedule show".
func (a *cli) scheduleShowCommand() *cobra.Command {
	return a.command(verb{
		use: "show NAME…", kind: shows, short: "show all that is known of schedules",
		long: `Show schedules with their jobs, the last and the next tick, and where they come
from: configuration, program, redis (resque-scheduler), or others (a daemon with
another configuration).`,
		example: "schedule show nightly", args: a.some("which schedule?", "schedule"), names: scheduleNames,
		run: func(ctx context.Context, s *session, names []string) error {
			all, _, err := s.schedules(ctx)
			if err != nil {
				return err
			}
			picked, err := view.FindSchedules(all, names)
			if err != nil {
				return s.lookup(err, "schedule")
			}
			l := newListing("NAME, WHEN, CLASS, QUEUE")
			for _, v := range picked {
				l.add(v.Name, v, v.Name, v.When, v.Class, v.Queue)
			}
			return showEach(s.output, l, picked, scheduleText)
		},
	})
}

func scheduleText(v *view.Schedule) string {
	d := details{at: 12}
	d.line("name", v.Name)
	d.line("when", v.When)
	d.line("description", v.Description)
	if v.Next != nil {
		d.line("next", v.Next.Format(time.RFC3339))
	}
	if v.Last != nil {
		d.line("last", v.Last.Format(time.RFC3339)+", "+outcomes[*v.LastOutcome])
	}
	if v.Overdue != nil {
		d.line("overdue", v.Overdue.Format(time.RFC3339))
	}
	d.line("class", v.Class)
	d.line("args", string(v.Args))
	d.line("queue", v.Queue)
	d.line("if_running", v.IfRunning)
	d.line("catch_up", v.CatchUp)
	d.line("source", v.Source)
	d.line("problem", v.Invalid)
	return d.String()
}

func until(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return view.Age(t.Sub(now))
}

type scheduleEdit struct {
	consent
	filterFlags
	run bool
}

// editScheduleCommand makes "schedule run" and "schedule rm".
func (a *cli) editScheduleCommand(run bool) *cobra.Command {
	e := &scheduleEdit{run: run}
	v := verb{
		use: "rm [NAME…]", kind: edits, short: "remove delayed jobs, or schedules kept in Redis",
		long: `Remove delayed jobs, by id or by filter. With a filter it asks first on a
terminal; elsewhere it needs --yes.

The name of a schedule removes it from Redis, or the records of one that no
configuration has any more. Remove one of the configuration there.`,
		example: "schedule rm 0af6af819782\nschedule rm --class Mail --since +1d --dry-run",
		args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !e.filtered():
				return usage("Name them, or use --all, "+e.conditions()+". See: "+a.again()+" schedule", "which?")
			case len(args) > 0 && e.filtered():
				return usage("", "name them or filter them, not both")
			}
			return nil
		},
		names: scheduleNames,
		flags: func(f *flagSet) {
			e.filterFlags.add(f, filter.Delayed)
			f.BoolVar(&e.All, "all", false, "all delayed jobs")
			e.consent.add(f)
		},
		run: func(ctx context.Context, s *session, args []string) error { return editSchedule(ctx, s, args, e) },
	}
	if run {
		v.use, v.short = "run [NAME…]", "push delayed jobs, or those of schedules, now"
		v.long = `Push delayed jobs to their queues now, by id or by filter. With a filter it
asks first on a terminal; elsewhere it needs --yes.

The name of a schedule enqueues its job now, in addition to its ticks.`
		v.example = "schedule run 0af6af819782\nschedule run --all --yes"
	}
	return a.command(v)
}

// text says what is to be done, or was done, with n jobs.
func (e *scheduleEdit) text(n int, done bool) string {
	verb := map[[2]bool]string{{true, true}: "pushed ", {true, false}: "push ", {false, true}: "removed ", {false, false}: "remove "}[[2]bool{e.run, done}]
	return verb + plural(n, "delayed job")
}

func editSchedule(ctx context.Context, s *session, names []string, e *scheduleEdit) error {
	var views []*view.Schedule
	var known []string // also names to suggest
	named := 0         // of names
	if len(names) > 0 {
		var err error
		if views, _, err = s.schedules(ctx); err != nil {
			return err
		}
	}
	for _, v := range views {
		known = append(known, v.Name)
		if slices.Contains(names, v.Name) {
			named++
		}
	}
	switch {
	case named == 0:
		return editDelayed(ctx, s, names, known, e)
	case named < len(names):
		return usage("", "name schedules or delayed jobs, not both at once")
	case e.dryRun:
		return s.printText("would " + map[bool]string{true: "enqueue the jobs of ", false: "remove "}[e.run] + plural(named, "schedule") + "\n")
	}
	picked, err := view.FindSchedules(views, names)
	if err != nil {
		return s.lookup(err, "schedule")
	}
	if e.run {
		return runSchedules(ctx, s, picked)
	}
	return removeSchedules(ctx, s, picked)
}

// editDelayed is editSchedule for delayed jobs. schedules are other names to suggest.
func editDelayed(ctx context.Context, s *session, names, schedules []string, e *scheduleEdit) error {
	looked := s.progressOf("looked at", 0)
	m, err := e.matcher(filter.WithProgress(ctx, looked.at))
	if err != nil {
		return err
	}
	jobs, err := view.FindDelayed(ctx, s.Store, names, schedules, m)
	looked.done()
	if err != nil {
		return s.lookup(err, "schedule")
	}
	n := 0
	r := editView{Matched: len(jobs), DryRun: e.dryRun}
	if r.Removed = &n; e.run {
		r.Removed, r.Pushed = nil, &n
	}
	if e.dryRun || len(jobs) == 0 {
		return tellScheduleEdit(s.output, e, r, n)
	}
	if err := s.a.confirm(e.yes || len(names) > 0, e.text(len(jobs), false)); err != nil {
		return err
	}
	enqueued := pushed{}
	err = s.Undelay(ctx, jobs, e.run, app.UniqueOf(s.loaded.Config), func(job store.DelayedJob, what store.FailedOutcome) {
		switch what {
		case store.FailedGone:
			r.Gone++
			return
		case store.FailedStuck:
			r.Stuck++
			return
		case store.FailedDuplicate:
			r.Duplicates++
		}
		n++
		enqueued.add(job.Queue, "")
	})
	kind := store.EventRemoved
	if e.run {
		kind = store.EventRan
	}
	s.did(kind, "delayed jobs", plural(n, "delayed job"), n)
	if err != nil {
		return fmt.Errorf("%w (done until then: %d)", err, n)
	}
	if e.run {
		by := s.a.workedBy(ctx, s.loaded.Config, enqueued)
		r.Warnings = by.Warnings
		defer s.a.warnUnworked(by)
	}
	return tellScheduleEdit(s.output, e, r, n)
}

func tellScheduleEdit(out *output, e *scheduleEdit, r editView, n int) error {
	text := "would " + e.text(r.Matched, false)
	if !r.DryRun {
		text = e.text(n, true)
		if r.Duplicates > 0 {
			text += fmt.Sprintf("; %d of them not: an equal job waits", r.Duplicates)
		}
		if r.Gone > 0 {
			text += fmt.Sprintf("; %d were moved or removed by someone else in the meantime", r.Gone)
		}
	}
	err := out.result(r, "", text+"\n")
	if r.Stuck > 0 {
		err = errors.Join(err, failure("stuck", "It is not a job, or the key of its queue in Redis is not a list.",
			"%s cannot be pushed", plural(r.Stuck, "delayed job")))
	}
	return err
}

func (s *session) schedules(ctx context.Context) ([]*view.Schedule, time.Time, error) {
	return view.Schedules(ctx, s.Store, scheduleSources(s.a.program(), s.loaded))
}

func scheduleSources(p app.Program, r *config.Resolved) view.ScheduleSources {
	return view.ScheduleSources{
		Configured: r.Schedules, Program: p.ClassSchedules(r.Config), Stored: r.PersistentSchedules, Defaults: p.ScheduleDefaults(r.Config),
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
	l, enqueued := &listing{}, pushed{}
	for _, v := range picked {
		if v.Class == "" || v.Queue == "" {
			return fmt.Errorf("schedule %q: %s", v.Name, v.Invalid)
		}
		payload, err := wire.EncodePayload(v.Class, v.Pushed())
		if err != nil {
			return fmt.Errorf("schedule %q: %w", v.Name, err)
		}
		res, err := s.jobs.EnqueueRaw(ctx, payload, client.Queue(v.Queue))
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
			return failure("configured", "Remove it there, then let the daemon read it again: HUP", "schedule %q is in the %s", v.Name, v.Source)
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
