package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) moveQueueCommand() *cobra.Command {
	e := &waitingEdit{move: true}
	var toStore string
	var back bool
	c := &cobra.Command{
		Use: "move FROM TO | move QUEUE --to STORE", Annotations: edits, Short: "move all jobs of a queue to another queue or store",
		Long: `Move all waiting jobs of a queue, in order, to the tail of another one, or with
--head to its head, in steps of a few milliseconds. Each job moves in one step,
so it is always in exactly one queue, and you can repeat the command. Suspects,
which wait outside the queue to run alone, move too. Jobs pushed during the
move may stay, and so do

  duplicates           the other queue is unique, and an equal job waits there
  slices of long jobs  they continue in the queue of their run

With --to they go to the queue of the same name in another store, in batches,
each job once. After an interruption "doctor" names the jobs on their way;
repeat the command to continue. Suspects, jobs of loner classes and delayed
jobs stay; unique queues are refused. First change the routes, so that new jobs
go to the other store; then move the waiting ones. They come from the store of
--store, or the only other one. --back takes back jobs on their way to a store
that is gone for good.

Pauses do not move: the jobs of a paused queue run if the other queue is not
paused. The queue keeps its name until "queues rm" or "queues prune". On a
terminal it asks first; elsewhere it needs --yes.`,
		Example: "  " + a.name + " queues move mail_old mail\n  " + a.name + " queues move mail --to bulk",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case toStore != "" && (len(args) != 1 || e.head || e.unknown):
				return usage("See: "+a.again()+" queues move --help", "with --to name one queue, and neither --head nor --unknown")
			case toStore != "":
				return nil
			case back:
				return usage("", "--back needs --to, the store that the jobs were on their way to")
			case len(args) != 2:
				return usage("See: "+a.again()+" queues", "name two queues: from which one, to which one")
			case args[0] == args[1]:
				return usage("", "name two different queues")
			case wire.CheckQueue(args[1]) != nil:
				return usage("", "%s", wire.CheckQueue(args[1]))
			}
			return nil
		},
		ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, args []string) error {
			if toStore != "" {
				return a.moveToStore(c, e, args[0], toStore, back)
			}
			return a.moveQueue(c, e, args[0], args[1])
		},
	}
	f := c.Flags()
	f.StringVar(&toStore, "to", "", "to this `store`")
	f.BoolVar(&back, "back", false, "with --to: take back jobs on their way there")
	f.BoolVar(&e.head, "head", false, "to its head")
	f.BoolVar(&e.unknown, "unknown", false, "allow a queue that does not exist yet")
	f.BoolVar(&e.yes, "yes", false, "do not ask")
	f.BoolVar(&e.dryRun, "dry-run", false, "only show what would change")
	return c
}

func (a *cli) moveQueue(c *cobra.Command, e *waitingEdit, from, to string) error {
	e.to = to
	var q *removedView
	err := a.withStore(c, func(ctx context.Context, s *store.Store) error {
		views, err := a.queueSizes(ctx, c, s, []string{from})
		if err != nil {
			return err
		}
		q = views[0]
		one, all, err := s.Paused(ctx, from, to)
		if err == nil && one[from] && !one[to] && !all {
			a.warn("queue %s is paused and %s is not: the jobs are worked there", wire.Printable(from, 100), wire.Printable(to, 100))
		}
		if err != nil {
			return err
		}
		return a.targetQueue(ctx, c, s, to, e.unknown)
	})
	if err != nil {
		return err
	}
	v := &waitingEditView{Queue: from, To: to, Jobs: q.Jobs, DryRun: e.dryRun}
	switch {
	case e.dryRun:
		return a.tellWaiting([]*waitingEditView{v}, e, true)
	case !e.yes && q.Jobs > 0:
		if err := a.confirm(e.question([]*waitingEditView{v})); err != nil {
			return err
		}
	}
	return a.withClient(c, func(ctx context.Context, jobs *client.Client, _ config.Config) error {
		ctx, stop := interruptible(ctx)
		defer stop()
		bar := a.progressOf("moved", int(q.Jobs))
		report, err := jobs.MoveQueue(ctx, from, to, client.MoveOptions{Head: e.head, Progress: func(moved int64) { bar.at(int(moved)) }})
		bar.done()
		a.did(store.EventMoved, "queue "+from, plural(int(report.Done), "job")+" to queue "+to, int(report.Done))
		if err != nil {
			return fmt.Errorf("%w (moved until then: %d; give the command again for the rest)", interrupted(ctx, err), report.Done)
		}
		return a.tellWaiting([]*waitingEditView{e.view(from, report)}, e, false)
	})
}

func (a *cli) pruneQueuesCommand() *cobra.Command {
	var yes, dryRun bool
	c := &cobra.Command{
		Use: "prune [QUEUE…]", Annotations: edits, Short: "remove the names of empty queues that no worker names",
		Long: `Remove the names of empty queues, those given or all, unless they are paused,
one of their jobs runs, or a worker names them. A pattern such as * or img_*
does not count: the queue exists again with its first job, and is worked then.
Records of their jobs go too. On a terminal it asks first; elsewhere it needs
--yes.`,
		Example:           "  " + a.name + " queues prune --dry-run",
		ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				names, err := view.PrunableQueues(ctx, s, args...)
				if err != nil {
					return a.noQueue(c, err)
				}
				views := make([]*removedView, len(names))
				for i, name := range names {
					views[i] = &removedView{Queue: name}
				}
				if dryRun || len(views) == 0 {
					return a.tellPruned(views, true, dryRun)
				}
				if !yes {
					if err := a.confirm("remove " + plural(len(names), "empty queue") + ": " + wire.Printable(strings.Join(names, ", "), 300)); err != nil {
						return err
					}
				}
				var done []*removedView
				for _, v := range views {
					pruned, err := s.PruneQueue(ctx, v.Queue)
					if err != nil {
						_ = a.tellPruned(done, false, false)
						return err
					}
					if pruned {
						done = append(done, v)
						a.did(store.EventRemoved, "queue "+v.Queue, "it was empty", 1)
					}
				}
				return a.tellPruned(done, false, false)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change")
	return c
}

func (a *cli) tellPruned(views []*removedView, would, dry bool) error {
	l, text, did := &listing{}, strings.Builder{}, "removed"
	if would {
		did = "would remove"
	}
	for _, v := range views {
		v.DryRun = dry
		l.names, l.items = append(l.names, v.Queue), append(l.items, v)
		text.WriteString(did + " " + wire.Printable(v.Queue, 0) + "\n")
	}
	switch {
	case !a.forPeople():
		return a.print(l)
	case a.flags.quiet:
		return nil
	case len(views) == 0:
		a.note("no queue is empty and named by no worker")
	}
	return a.printText(text.String())
}
