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

// waitingEdit is a "jobs rm" or "jobs move".
type waitingEdit struct {
	waitingFlags
	move, head, unknown bool
	to                  string
	yes, dryRun         bool
}

type waitingEditView struct {
	Queue string `json:"queue"`
	To    string `json:"to,omitempty"`
	Jobs  int64  `json:"jobs"`
	// The rest count selected jobs that stay.
	Duplicates int64 `json:"duplicates"`
	LongJobs   int64 `json:"long_jobs"`
	Loners     int64 `json:"loners"`
	DryRun     bool  `json:"dry_run,omitempty"`
}

func (a *cli) editWaitingCommand(move bool) *cobra.Command {
	e := &waitingEdit{move: move}
	c := &cobra.Command{
		Use: "rm", Annotations: edits, Short: "remove waiting jobs",
		Long: `Remove waiting jobs by class, arguments, id and age; "jobs find" with the same
flags lists them. Their entries in the set and the times of a unique queue,
loner markers and counts of deaths go too. On a terminal it asks first;
elsewhere it needs --yes.

Running jobs stay, as do delayed jobs ("schedule rm"), jobs that wait to run
alone after their process died ("queues purge"), and slices of long jobs: use
"longjobs cancel", since a run without its slice counts as lost and is resumed.`,
		Example: "  " + a.name + " jobs rm --queue mail --class Newsletter --dry-run\n  " + a.name + " jobs rm --class Mail --args '[42]' --yes",
	}
	if move {
		c.Use, c.Short = "move --to QUEUE", "move jobs that wait to another queue"
		c.Long = `Move waiting jobs, unchanged and in order, to the tail of another queue, or
with --head to its head; "jobs find" with the same flags lists them. Each job
moves in one step, so it is always in exactly one queue. Its entries in the set
and the times of a unique queue, its loner marker and its count of deaths
follow. A job stays if the other queue is unique and an equal one waits there.
On a terminal it asks first; elsewhere it needs --yes.

Running and delayed jobs stay, as do jobs that wait to run alone ("queues
move") and slices of long jobs, which continue in the queue of their run.`
		c.Example = "  " + a.name + " jobs move --queue mail --class Newsletter --to bulk\n  " + a.name + " jobs move --class Mail --args '[42]' --to mail_high --head --yes"
	}
	c.Args = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return usage("See: "+a.again()+" jobs find", "no arguments are expected; select jobs with --class, --args, --match, --id or --older-than")
		case move && e.to == "":
			return usage("See: "+a.again()+" queues", "to which queue? Use --to")
		case move && wire.CheckQueue(e.to) != nil:
			return usage("", "--to: %s", wire.CheckQueue(e.to))
		case move && slices.Contains(e.queues, e.to):
			return usage("", "--to %s: the jobs wait there already", e.to)
		case !slices.ContainsFunc(waitingFilters, c.Flags().Changed):
			whole := "queues purge QUEUE"
			if move {
				whole = "queues move QUEUE QUEUE"
			}
			return usage("Use --class, --args, --match, --id or --older-than. For all jobs of a queue: "+a.again()+" "+whole, "which jobs?")
		}
		return e.resolve(c, time.Now())
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return a.editWaiting(c, e) }
	e.add(c, a)
	f := c.Flags()
	f.IntVar(&e.filter.Limit, "limit", 0, "most jobs, first of each queue (0: no limit)")
	f.BoolVar(&e.yes, "yes", false, "do not ask")
	f.BoolVar(&e.dryRun, "dry-run", false, "only show what would change")
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	if move {
		f.StringVar(&e.to, "to", "", "destination `queue`")
		f.BoolVar(&e.head, "head", false, "to its head")
		f.BoolVar(&e.unknown, "unknown", false, "allow a queue that does not exist yet")
		_ = c.RegisterFlagCompletionFunc("to", a.live(queueNames))
	}
	return c
}

func (a *cli) editWaiting(c *cobra.Command, e *waitingEdit) error {
	var queues []store.QueueInfo
	err := a.withStore(c, func(ctx context.Context, s *store.Store) (err error) {
		if e.move {
			if err := a.targetQueue(ctx, c, s, e.to, e.unknown); err != nil {
				return err
			}
		}
		queues, err = e.pick(ctx, s, a, c)
		return err
	})
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, jobs *client.Client, _ config.Config) error {
		var views []*waitingEditView
		for _, q := range queues {
			if q.Err != nil {
				a.warn("queue %s: %s", wire.Printable(q.Name, 100), q.Err)
				continue
			}
			if q.Size == 0 || e.move && q.Name == e.to {
				continue
			}
			if e.yes && !e.dryRun {
				views = append(views, &waitingEditView{Queue: q.Name, To: e.to})
				continue
			}
			report, err := jobs.CountWaiting(ctx, q.Name, e.filter)
			if err != nil {
				return err
			}
			if report != (client.WaitingReport{}) {
				views = append(views, e.view(q.Name, report))
			}
		}
		if e.dryRun {
			return a.tellWaiting(views, e, true)
		}
		if !e.yes && len(views) > 0 {
			if err := a.confirm(e.question(views)); err != nil {
				return err
			}
		}
		ctx, stop := interruptible(ctx)
		defer stop()
		for i, v := range views {
			report, err := e.edit(ctx, jobs, v.Queue)
			*v = *e.view(v.Queue, report)
			if e.move {
				a.did(store.EventMoved, "queue "+v.Queue, plural(int(v.Jobs), "waiting job")+" to queue "+e.to, int(v.Jobs))
			} else {
				a.did(store.EventRemoved, "queue "+v.Queue, plural(int(v.Jobs), "waiting job"), int(v.Jobs))
			}
			if err != nil {
				_ = a.tellWaiting(views[:i+1], e, false)
				return interrupted(ctx, err)
			}
		}
		return a.tellWaiting(slices.DeleteFunc(views, func(v *waitingEditView) bool {
			return v.Jobs+v.Duplicates+v.LongJobs+v.Loners == 0
		}), e, false)
	})
}

// targetQueue refuses an unknown queue, unless that is allowed, and warns if it is not worked.
func (a *cli) targetQueue(ctx context.Context, c *cobra.Command, s *store.Store, name string, unknown bool) error {
	found, err := view.Queues(ctx, s, name)
	var missing *view.NotFoundError
	switch {
	case errors.As(err, &missing) && unknown:
		return nil
	case errors.As(err, &missing):
		p := lookup(err, a.again()+" queues; --unknown creates it", c)
		return p
	case err != nil:
		return err
	}
	switch q := found[0]; {
	case q.State == view.QueueBroken:
		return fmt.Errorf("queue %q: %s", name, q.Problem)
	case q.State == view.QueuePaused:
		a.warn("queue %s is paused; its jobs wait until: %s queues resume %s", wire.Printable(name, 100), a.again(), wire.Printable(name, 100))
	case q.Served == 0:
		a.warn("no worker serves queue %s", wire.Printable(name, 100))
	}
	return nil
}

func (e *waitingEdit) edit(ctx context.Context, jobs *client.Client, queue string) (client.WaitingReport, error) {
	if e.move {
		return jobs.MoveWaiting(ctx, queue, e.to, e.filter, client.MoveOptions{Head: e.head})
	}
	return jobs.RemoveWaiting(ctx, queue, e.filter)
}

func (e *waitingEdit) view(queue string, r client.WaitingReport) *waitingEditView {
	return &waitingEditView{
		Queue: queue, To: e.to, Jobs: r.Done, Duplicates: r.Duplicates, LongJobs: r.LongJobs, Loners: r.Loners, DryRun: e.dryRun,
	}
}

func (e *waitingEdit) question(views []*waitingEditView) string {
	n, by := int64(0), map[string]bool{}
	for _, v := range views {
		n += v.Jobs
		by[v.Queue] = true
	}
	from := wire.Printable(strings.Join(slices.Sorted(maps.Keys(by)), ", "), 200)
	if e.move {
		return fmt.Sprintf("move %s of %s to %s", plural(int(n), "job"), from, wire.Printable(e.to, 100))
	}
	return fmt.Sprintf("remove %s of %s", plural(int(n), "job"), from)
}

func (a *cli) tellWaiting(views []*waitingEditView, e *waitingEdit, dry bool) error {
	l := &listing{}
	var text strings.Builder
	var slicesLeft int64
	did := "removed"
	switch {
	case e.move && dry:
		did = "would move"
	case e.move:
		did = "moved"
	case dry:
		did = "would remove"
	}
	for _, v := range views {
		l.names, l.items = append(l.names, v.Queue), append(l.items, v)
		fmt.Fprintf(&text, "%s %s of %s", did, plural(int(v.Jobs), "job"), wire.Printable(v.Queue, 100))
		if e.move {
			text.WriteString(" to " + wire.Printable(e.to, 100))
		}
		if v.Duplicates > 0 {
			fmt.Fprintf(&text, "; %d stay: an equal job waits in %s", v.Duplicates, wire.Printable(e.to, 100))
		}
		if v.Loners > 0 {
			fmt.Fprintf(&text, "; %d stay: the lock of their class is kept elsewhere and cannot follow", v.Loners)
		}
		text.WriteString("\n")
		slicesLeft += v.LongJobs
	}
	if len(views) == 0 {
		fmt.Fprintf(&text, "%s no job\n", did)
	}
	var err error
	switch {
	case !a.forPeople():
		err = a.print(l)
	case !a.flags.quiet:
		err = a.printText(text.String())
	}
	if err == nil && slicesLeft > 0 {
		stay := "stay"
		if slicesLeft == 1 {
			stay = "stays"
		}
		a.warn("%s of long jobs %s; see: %s longjobs cancel", plural(int(slicesLeft), "slice"), stay, a.again())
	}
	return err
}
