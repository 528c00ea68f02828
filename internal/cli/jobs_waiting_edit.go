package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// waitingEdit is a "jobs rm" or "jobs move".
type waitingEdit struct {
	filterFlags
	consent
	move, head, unknown bool
	to                  string
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
	v := verb{
		use: "rm", kind: edits, short: "remove waiting jobs",
		long: `Remove waiting jobs by class, arguments, id and time; "jobs find" with the same
flags lists them. Their entries in the set and the times of a unique queue,
loner markers and counts of deaths go too. On a terminal it asks first;
elsewhere it needs --yes.

Running jobs stay, as do delayed jobs ("schedule rm"), jobs that wait to run
alone after their process died ("queues purge"), and slices of long jobs: use
"longjobs cancel", since a run without its slice counts as lost and is resumed.`,
		example: "jobs rm --queue mail --class Newsletter --dry-run\njobs rm --class Mail --args '[42]' --yes",
		args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usage("See: "+a.again()+" jobs find", "no arguments are expected; select jobs with %s", e.conditions())
			case move && e.to == "":
				return usage("See: "+a.again()+" queues", "to which queue? Use --to")
			case move && wire.CheckQueue(e.to) != nil:
				return usage("", "--to: %s", wire.CheckQueue(e.to))
			case !e.selects():
				whole := "queues purge QUEUE"
				if move {
					whole = "queues move QUEUE QUEUE"
				}
				return usage("Use "+e.conditions()+". For all jobs of a queue: "+a.again()+" "+whole, "which jobs?")
			}
			return nil
		},
		flags: func(f *flagSet) {
			e.filterFlags.add(f, filter.Waiting)
			f.limit(&e.Limit, 0, 0, "most jobs, first of each queue (0: no limit)")
			e.consent.add(f)
			if move {
				f.StringVar(&e.to, "to", "", "destination `queue`")
				f.BoolVar(&e.head, "head", false, "to its head")
				f.BoolVar(&e.unknown, "unknown", false, "allow a queue that does not exist yet")
				f.completers["to"] = a.live(queueNames)
			}
			f.check(func() error {
				if move && slices.Contains(e.Queues, e.to) {
					return usage("", "--to %s: the jobs wait there already", e.to)
				}
				return nil
			})
		},
		run: func(ctx context.Context, s *session, _ []string) error { return editWaiting(ctx, s, e) },
	}
	if move {
		v.use, v.short = "move --to QUEUE", "move jobs that wait to another queue"
		v.long = `Move waiting jobs, unchanged and in order, to the tail of another queue, or
with --head to its head; "jobs find" with the same flags lists them. Each job
moves in one step, so it is always in exactly one queue. Its entries in the set
and the times of a unique queue, its loner marker and its count of deaths
follow. A job stays if the other queue is unique and an equal one waits there.
On a terminal it asks first; elsewhere it needs --yes.

Running and delayed jobs stay, as do jobs that wait to run alone ("queues
move") and slices of long jobs, which continue in the queue of their run.`
		v.example = "jobs move --queue mail --class Newsletter --to bulk\njobs move --class Mail --args '[42]' --to mail_high --head --yes"
	}
	return a.command(v)
}

// selects reports whether there is a condition other than on the queue.
func (e *waitingEdit) selects() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(e.words)), func(word string) bool { return word != "queue" })
}

func editWaiting(ctx context.Context, s *session, e *waitingEdit) error {
	if e.move {
		if err := targetQueue(ctx, s, e.to, e.unknown); err != nil {
			return err
		}
	}
	queues, err := queuesFor(ctx, s, e.Filter)
	if err != nil {
		return err
	}
	var views []*waitingEditView
	for _, q := range queues {
		switch {
		case q.Err != nil:
			s.warn("queue %s: %s", wire.Printable(q.Name, 100), q.Err)
			continue
		case q.Size == 0 || e.move && q.Name == e.to:
			continue
		case e.yes && !e.dryRun:
			views = append(views, &waitingEditView{Queue: q.Name, To: e.to})
			continue
		}
		report, err := s.jobs.CountWaiting(ctx, q.Name, e.Filter)
		if err != nil {
			return err
		}
		if report != (client.WaitingReport{}) {
			views = append(views, e.view(q.Name, report))
		}
	}
	if e.dryRun {
		return e.tell(s.output, s.again(), views...)
	}
	if err := s.a.confirm(e.yes || len(views) == 0, e.question(views...)); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	for i, v := range views {
		report, err := e.edit(ctx, s.jobs, v.Queue)
		*v = *e.view(v.Queue, report)
		kind, text := store.EventRemoved, plural(int(v.Jobs), "waiting job")
		if e.move {
			kind, text = store.EventMoved, text+" to queue "+e.to
		}
		s.did(kind, "queue "+v.Queue, text, int(v.Jobs))
		if err != nil {
			_ = e.tell(s.output, s.again(), views[:i+1]...)
			return interrupted(ctx, err)
		}
	}
	return e.tell(s.output, s.again(), slices.DeleteFunc(views, func(v *waitingEditView) bool {
		return v.Jobs+v.Duplicates+v.LongJobs+v.Loners == 0
	})...)
}

// targetQueue refuses an unknown queue, unless that is allowed, and warns if it is not worked.
func targetQueue(ctx context.Context, s *session, name string, unknown bool) error {
	found, err := view.Queues(ctx, s, name)
	if err != nil {
		if _, missing := errors.AsType[*view.NotFoundError](err); missing && unknown {
			return nil
		}
		return s.lookup(err, "queues; --unknown creates it")
	}
	switch q := found[0]; {
	case q.State == view.QueueBroken:
		return fmt.Errorf("queue %q: %s", name, q.Problem)
	case q.State == view.QueuePaused:
		s.warn("queue %s is paused; its jobs wait until: %s queues resume %s", wire.Printable(name, 100), s.again(), wire.Printable(name, 100))
	case q.Served == 0:
		s.warn("no worker serves queue %s", wire.Printable(name, 100))
	}
	return nil
}

func (e *waitingEdit) edit(ctx context.Context, jobs *client.Client, queue string) (client.WaitingReport, error) {
	if e.move {
		return jobs.MoveWaiting(ctx, queue, e.to, e.Filter, client.MoveOptions{Head: e.head})
	}
	return jobs.RemoveWaiting(ctx, queue, e.Filter)
}

func (e *waitingEdit) view(queue string, r client.WaitingReport) *waitingEditView {
	return &waitingEditView{
		Queue: queue, To: e.to, Jobs: r.Done, Duplicates: r.Duplicates, LongJobs: r.LongJobs, Loners: r.Loners, DryRun: e.dryRun,
	}
}

func (e *waitingEdit) question(views ...*waitingEditView) string {
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

// tell prints what was done, or with --dry-run would be done. again is the start of a command.
func (e *waitingEdit) tell(out *output, again string, views ...*waitingEditView) error {
	did := map[[2]bool]string{
		{false, false}: "removed", {false, true}: "would remove", {true, false}: "moved", {true, true}: "would move",
	}[[2]bool{e.move, e.dryRun}]
	l := &listing{}
	var slicesLeft int64
	for _, v := range views {
		text := fmt.Sprintf("%s %s of %s", did, plural(int(v.Jobs), "job"), wire.Printable(v.Queue, 100))
		if e.move {
			text += " to " + wire.Printable(e.to, 100)
		}
		if v.Duplicates > 0 {
			text += fmt.Sprintf("; %d stay: an equal job waits in %s", v.Duplicates, wire.Printable(e.to, 100))
		}
		if v.Loners > 0 {
			text += fmt.Sprintf("; %d stay: the lock of their class is kept elsewhere and cannot follow", v.Loners)
		}
		l.did(v.Queue, v, "%s", text)
		slicesLeft += v.LongJobs
	}
	if len(views) == 0 {
		fmt.Fprintf(&l.lines, "%s no job\n", did)
	}
	if err := out.tell(l); err != nil || slicesLeft == 0 {
		return err
	}
	stay := "stay"
	if slicesLeft == 1 {
		stay = "stays"
	}
	out.warn("%s of long jobs %s; see: %s longjobs cancel", plural(int(slicesLeft), "slice"), stay, again)
	return nil
}
