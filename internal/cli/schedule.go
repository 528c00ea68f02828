package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

const scheduleLimit = 100

type delayedFilter struct {
	view.DelayedFilter
	all bool
}

func (f *delayedFilter) add(c *cobra.Command, a *cli) {
	c.Flags().StringVar(&f.Queue, "queue", "", "only this queue")
	c.Flags().StringVar(&f.Class, "class", "", "only this class")
	_ = c.RegisterFlagCompletionFunc("queue", a.live(queueNames))
	_ = c.RegisterFlagCompletionFunc("class", a.live(a.classNames))
}

func (f *delayedFilter) filtered() bool { return f.all || f.Queue != "" || f.Class != "" }

func (a *cli) scheduleCommand() *cobra.Command {
	var f delayedFilter
	limit := scheduleLimit
	ls := func(c *cobra.Command, _ []string) error {
		if limit < 1 {
			return usage("", "--limit %d: use 1 or more", limit)
		}
		return a.withConfig(c, func(ctx context.Context, s *store.Store, cfg config.Config) error {
			return a.listSchedule(ctx, s, cfg, f, limit)
		})
	}
	flags := func(c *cobra.Command) *cobra.Command {
		f.add(c, a)
		c.Flags().IntVar(&limit, "limit", scheduleLimit, "most delayed jobs, next first")
		return c
	}
	parent := flags(&cobra.Command{
		Use: "schedule", Annotations: shows, Short: "list, run or remove schedules and delayed jobs", RunE: ls,
		Long: `List schedules, then delayed jobs, the next ones first. Schedules come from the
configuration, from resque-scheduler's keys in Redis, and from daemons with
another configuration. NEXT is when the next tick comes, LAST the result and
time of the last one:

  ok         its job was enqueued
  skipped    not enqueued: the previous one had not ended (if_running)
  duplicate  not enqueued: an equal one waited in its unique queue
  missed     not enqueued: no daemon ran then (catch_up)

Delayed jobs run once: they were enqueued with --in or --at, by this program or
resque-scheduler, or asked to run again later.`,
		Example: "  " + a.name + " schedule -c resqued.yaml\n  " + a.name + " schedule --class Mail\n  " + a.name + " schedule run nightly\n  " + a.name + " schedule rm 0af6af819782",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	})
	parent.AddCommand(flags(&cobra.Command{
		Use: "ls", Annotations: shows, Short: "list schedules and delayed jobs (default)", Args: exactly(0, "no arguments"), RunE: ls,
	}), a.editScheduleCommand(true), a.editScheduleCommand(false))
	return parent
}

func (a *cli) listSchedule(ctx context.Context, s *store.Store, cfg config.Config, f delayedFilter, limit int) error {
	schedules, now, err := a.schedules(ctx, s, cfg)
	if err != nil {
		return err
	}
	schedules = slices.DeleteFunc(schedules, func(v *view.Schedule) bool {
		return f.Queue != "" && f.Queue != v.Queue || f.Class != "" && f.Class != v.Class
	})
	jobs, next, err := view.Delayed(ctx, s, f.DelayedFilter, store.DelayedPlace{}, limit)
	if err != nil {
		return err
	}
	l := &listing{partial: next != "", columns: []column{
		{title: "NAME"},
		{title: "WHEN"},
		{title: "NEXT", right: true},
		{title: "LAST", right: true},
		{title: "CLASS"},
		{title: "QUEUE"},
		{title: "ARGS", wide: true},
		{title: "DUE", wide: true},
		{title: "PROBLEM", wide: true},
	}}
	addSchedules(l, schedules, now)
	for _, v := range jobs {
		l.add(v.Name, v, v.Name, v.When, until(*v.Next, now), "", v.Class, v.Queue, string(v.Args), v.Next.Format(time.RFC3339), v.Invalid)
	}
	if a.forPeople() {
		switch {
		case len(jobs) == 0 && len(schedules) == 0:
			a.note("no schedules, and nothing waits for its time: see docs/cron.md and docs/schedule.md")
		case next != "":
			a.note("only the next %d delayed jobs are shown; see --limit", limit)
		}
	}
	return a.print(l)
}

func until(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return view.Age(t.Sub(now))
}

// editScheduleCommand makes "schedule run" and "schedule rm".
func (a *cli) editScheduleCommand(run bool) *cobra.Command {
	var f delayedFilter
	e := scheduleEdit{run: run}
	c := &cobra.Command{
		Use: "rm [NAME…]", Annotations: edits, Short: "remove delayed jobs, or schedules kept in Redis",
		Long: `Remove delayed jobs, by id or by filter. With a filter it asks first on a
terminal; elsewhere it needs --yes.

The name of a schedule removes it from Redis, or the records of one that no
configuration has any more. Remove one of the configuration there.`,
		Example: "  " + a.name + " schedule rm 0af6af819782\n  " + a.name + " schedule rm --class Mail --dry-run",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !f.filtered():
				return usage("Name them, or use --class, --queue or --all. See: "+a.again()+" schedule", "which?")
			case len(args) > 0 && f.filtered():
				return usage("", "name them or filter them, not both")
			}
			return nil
		},
		RunE:              func(c *cobra.Command, args []string) error { return a.editSchedule(c, args, f, e) },
		ValidArgsFunction: a.live(scheduleNames),
	}
	if run {
		c.Use, c.Short = "run [NAME…]", "push delayed jobs, or those of schedules, now"
		c.Long = `Push delayed jobs to their queues now, by id or by filter. With a filter it
asks first on a terminal; elsewhere it needs --yes.

The name of a schedule enqueues its job now, in addition to its ticks.`
		c.Example = "  " + a.name + " schedule run 0af6af819782\n  " + a.name + " schedule run --all --yes"
	}
	f.add(c, a)
	c.Flags().BoolVar(&f.all, "all", false, "all delayed jobs")
	c.Flags().BoolVar(&e.dryRun, "dry-run", false, "only show what would change")
	c.Flags().BoolVar(&e.yes, "yes", false, "do not ask")
	return c
}

type scheduleEdit struct{ run, dryRun, yes bool }

// scheduleReport is the result for the selected delayed jobs.
type scheduleReport struct {
	Matched int `json:"matched"`
	// Pushed or Removed is set, depending on the verb.
	Pushed  *int `json:"pushed,omitempty"`
	Removed *int `json:"removed,omitempty"`
	// Duplicates were not pushed because an equal job waits.
	Duplicates int      `json:"duplicates"`
	Gone       int      `json:"gone"`
	Stuck      int      `json:"stuck"`
	DryRun     bool     `json:"dry_run"`
	Warnings   []string `json:"warnings,omitempty"`
}

func (e scheduleEdit) text(n int, done bool) string {
	verb := map[[2]bool]string{{true, true}: "pushed ", {true, false}: "push ", {false, true}: "removed ", {false, false}: "remove "}[[2]bool{e.run, done}]
	return verb + plural(n, "delayed job")
}

func (a *cli) editSchedule(c *cobra.Command, names []string, f delayedFilter, e scheduleEdit) error {
	var schedules []string // all known
	var named int          // of names
	err := a.withConfig(c, func(ctx context.Context, s *store.Store, cfg config.Config) error {
		if len(names) == 0 {
			return nil
		}
		views, _, err := a.schedules(ctx, s, cfg)
		for _, v := range views {
			schedules = append(schedules, v.Name)
			if slices.Contains(names, v.Name) {
				named++
			}
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case named == 0:
		return a.editDelayed(c, names, schedules, f, e)
	case named < len(names):
		return usage("", "name schedules or delayed jobs, not both at once")
	case e.dryRun:
		return a.printText("would " + map[bool]string{true: "enqueue the jobs of ", false: "remove "}[e.run] + plural(named, "schedule") + "\n")
	case e.run:
		return a.runSchedules(c, names)
	}
	return a.removeSchedules(c, names)
}

// editDelayed is editSchedule for delayed jobs. schedules are other names to suggest.
func (a *cli) editDelayed(c *cobra.Command, names, schedules []string, f delayedFilter, e scheduleEdit) error {
	cfg, err := a.load(c)
	if err != nil {
		return err
	}
	return a.withStore(c, func(ctx context.Context, s *store.Store) error {
		jobs, err := a.delayedJobs(ctx, s, names, schedules, f)
		if err != nil {
			return err
		}
		n := 0
		r := scheduleReport{Matched: len(jobs), DryRun: e.dryRun}
		if r.Removed = &n; e.run {
			r.Removed, r.Pushed = nil, &n
		}
		if e.dryRun || len(jobs) == 0 {
			return a.tellScheduleEdit(e, r, n)
		}
		if len(names) == 0 && !e.yes {
			if err := a.confirm(e.text(len(jobs), false)); err != nil {
				return err
			}
		}
		enqueued := pushed{}
		err = s.Undelay(ctx, jobs, e.run, app.UniqueOf(cfg.Config), func(job store.DelayedJob, what store.FailedOutcome) {
			if what != store.FailedGone && what != store.FailedStuck {
				enqueued.add(job.Queue, "")
			}
			switch what {
			case store.FailedGone:
				r.Gone++
			case store.FailedStuck:
				r.Stuck++
			case store.FailedDuplicate:
				r.Duplicates++
				n++
			default:
				n++
			}
		})
		kind := store.EventRemoved
		if e.run {
			kind = store.EventRan
		}
		a.did(kind, "delayed jobs", plural(n, "delayed job"), n)
		if err != nil {
			return fmt.Errorf("%w (done until then: %d)", err, n)
		}
		if e.run {
			by := a.workedBy(ctx, cfg.Config, enqueued)
			r.Warnings = by.Warnings
			defer a.warnUnworked(by)
		}
		return a.tellScheduleEdit(e, r, n)
	})
}

func (a *cli) delayedJobs(ctx context.Context, s *store.Store, names, schedules []string, f delayedFilter) ([]store.DelayedJob, error) {
	jobs, err := view.FindDelayed(ctx, s, names, schedules, f.DelayedFilter)
	return jobs, lookup(err, a.again()+" schedule", nil)
}

func (a *cli) tellScheduleEdit(e scheduleEdit, r scheduleReport, n int) error {
	var err error
	switch {
	case a.flags.output == outJSON:
		err = a.printJSON(r)
	case a.flags.output == outName || a.flags.quiet:
	case r.DryRun:
		err = a.printText("would " + e.text(r.Matched, false) + "\n")
	default:
		text := e.text(n, true)
		if r.Duplicates > 0 {
			text += fmt.Sprintf("; %d of them not: an equal job waits", r.Duplicates)
		}
		if r.Gone > 0 {
			text += fmt.Sprintf("; %d were moved or removed by someone else in the meantime", r.Gone)
		}
		err = a.printText(text + "\n")
	}
	if r.Stuck > 0 {
		err = errors.Join(err, &problem{
			exit: exitFailed, code: "stuck", lines: []string{plural(r.Stuck, "delayed job") + " cannot be pushed"},
			hint: "It is not a job, or the key of its queue in Redis is not a list.",
		})
	}
	return err
}
