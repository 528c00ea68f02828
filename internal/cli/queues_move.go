package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	return a.command(verb{
		use: "move FROM TO | move QUEUE --to STORE", kind: edits, short: "move all jobs of a queue to another queue or store",
		long: `Move all waiting jobs of a queue, in order, to the tail of another one, or with
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
		example: "queues move mail_old mail\nqueues move mail --to bulk",
		args: func(_ *cobra.Command, args []string) error {
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
		names: queueNames,
		flags: func(f *flagSet) {
			f.StringVar(&toStore, "to", "", "to this `store`")
			f.BoolVar(&back, "back", false, "with --to: take back jobs on their way there")
			f.BoolVar(&e.head, "head", false, "to its head")
			f.BoolVar(&e.unknown, "unknown", false, "allow a queue that does not exist yet")
			e.consent.add(f)
		},
		do: func(c *cobra.Command, args []string) error {
			if toStore != "" {
				return a.moveToStore(c, e, args[0], toStore, back)
			}
			r, err := a.load(c)
			if err != nil {
				return err
			}
			return a.inStore(c, r, func(ctx context.Context, s *session) error { return moveQueue(ctx, s, e, args[0], args[1]) })
		},
	})
}

func moveQueue(ctx context.Context, s *session, e *waitingEdit, from, to string) error {
	e.to = to
	views, err := queueSizes(ctx, s, []string{from})
	if err != nil {
		return err
	}
	one, all, err := s.Paused(ctx, from, to)
	if err != nil {
		return err
	}
	if one[from] && !one[to] && !all {
		s.warn("queue %s is paused and %s is not: the jobs are worked there", wire.Printable(from, 100), wire.Printable(to, 100))
	}
	if err := targetQueue(ctx, s, to, e.unknown); err != nil {
		return err
	}
	v := &waitingEditView{Queue: from, To: to, Jobs: views[0].Jobs, DryRun: e.dryRun}
	if e.dryRun {
		return e.tell(s.output, s.again(), v)
	}
	if err := s.a.confirm(e.yes || v.Jobs == 0, e.question(v)); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	bar := s.progressOf("moved", int(v.Jobs))
	report, err := s.jobs.MoveQueue(ctx, from, to, client.MoveOptions{Head: e.head, Progress: func(moved int64) { bar.at(int(moved)) }})
	bar.done()
	s.did(store.EventMoved, "queue "+from, plural(int(report.Done), "job")+" to queue "+to, int(report.Done))
	if err != nil {
		return fmt.Errorf("%w (moved until then: %d; give the command again for the rest)", interrupted(ctx, err), report.Done)
	}
	return e.tell(s.output, s.again(), e.view(from, report))
}

func (a *cli) pruneQueuesCommand() *cobra.Command {
	var o consent
	return a.command(verb{
		use: "prune [QUEUE…]", kind: edits, short: "remove the names of empty queues that no worker names",
		long: `Remove the names of empty queues, those given or all, unless they are paused,
one of their jobs runs, or a worker names them. A pattern such as * or img_*
does not count: the queue exists again with its first job, and is worked then.
Records of their jobs go too. On a terminal it asks first; elsewhere it needs
--yes.`,
		example: "queues prune --dry-run",
		args:    cobra.ArbitraryArgs, names: queueNames, flags: o.add,
		run: func(ctx context.Context, s *session, args []string) error { return pruneQueues(ctx, s, args, o) },
	})
}

func pruneQueues(ctx context.Context, s *session, args []string, o consent) error {
	names, err := view.PrunableQueues(ctx, s.Store, args...)
	if err != nil {
		return s.lookup(err, "queues")
	}
	question := "remove " + plural(len(names), "empty queue") + ": " + wire.Printable(strings.Join(names, ", "), 300)
	if err := s.a.confirm(o.yes || o.dryRun || len(names) == 0, question); err != nil {
		return err
	}
	l := &listing{}
	for _, name := range names {
		v := &removedView{Queue: name, DryRun: o.dryRun}
		if o.dryRun {
			l.did(name, v, "would remove %s", wire.Printable(name, 0))
			continue
		}
		pruned, err := s.PruneQueue(ctx, name)
		if err != nil {
			_ = s.tell(l)
			return err
		}
		if pruned {
			l.did(name, v, "removed %s", wire.Printable(name, 0))
			s.did(store.EventRemoved, "queue "+name, "it was empty", 1)
		}
	}
	if len(l.items) == 0 && s.forPeople() {
		s.note("no queue is empty and named by no worker")
	}
	return s.tell(l)
}

func (a *cli) moveToStore(c *cobra.Command, e *waitingEdit, queue, to string, back bool) error {
	from, err := a.sourceStore(c, to)
	if err != nil {
		return err
	}
	target, err := a.loadAs(c, config.Options{Store: to})
	if err != nil {
		return err
	}
	source, err := a.loadAs(c, config.Options{Store: from}) // last, because events are written there
	if err != nil {
		return err
	}
	return a.inStore(c, source, func(ctx context.Context, here *session) error {
		return a.inStore(c, target, func(_ context.Context, there *session) error { return transfer(ctx, e, here, there, queue, back) })
	})
}

// transfer moves the jobs of a queue to another store, or back those that are on their way there.
func transfer(ctx context.Context, e *waitingEdit, here, there *session, queue string, back bool) error {
	jobs, err := here.Length(ctx, queue)
	if err != nil {
		return err
	}
	from, to := here.loaded.Store, there.loaded.Store
	v := &waitingEditView{Queue: from + "/" + queue, To: to + "/" + queue, Jobs: jobs, DryRun: e.dryRun}
	if e.to = v.To; !there.loaded.Home(queue) && !back {
		here.warn("queue %s belongs to %s: new jobs do not go to %s, see routes", wire.Printable(queue, 100),
			cmp.Or(config.RouteOf(there.loaded.Routes, queue), "no store"), to)
	}
	question := e.question(v)
	if back {
		question = "put jobs of queue " + queue + " that are on their way to store " + to + " back, which run twice if it is not gone for good"
	}
	switch {
	case e.dryRun && back:
		return usage("", "--back does not go with --dry-run; see: %s doctor", here.name)
	case e.dryRun:
		return e.tell(here.output, here.again(), v)
	}
	if err := here.a.confirm(e.yes || jobs == 0 && !back, question); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	if back {
		n, err := here.jobs.MoveQueueBack(ctx, queue, there.jobs)
		if err != nil {
			return err
		}
		here.did(store.EventMoved, "queue "+queue, plural(int(n), "job")+" back, not to store "+to, int(n))
		e.to = v.Queue
		return e.tell(here.output, here.again(), &waitingEditView{Queue: v.To, To: v.Queue, Jobs: n})
	}
	bar := here.progressOf("moved", int(jobs))
	report, err := here.jobs.MoveQueueTo(ctx, queue, there.jobs, client.MoveOptions{Name: to, Progress: func(moved int64) { bar.at(int(moved)) }})
	bar.done()
	here.did(store.EventMoved, "queue "+queue, plural(int(report.Done), "job")+" to "+v.To, int(report.Done))
	if err != nil {
		return fmt.Errorf("%w (moved until then: %d; give the command again for the rest, of which some may be on their way)", interrupted(ctx, err), report.Done)
	}
	moved := e.view(queue, report)
	moved.Queue, moved.To = v.Queue, v.To
	return e.tell(here.output, here.again(), moved)
}

func (a *cli) sourceStore(c *cobra.Command, to string) (from string, err error) {
	r, err := a.loadAs(c, config.Options{})
	if err != nil {
		return "", err
	}
	names := storeNames(r)
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == to })
	from = r.Store
	switch {
	case len(names) == 0:
		return "", usage("To another queue: queues move FROM TO", "--to %s: the configuration has no stores", wire.Printable(to, 100))
	case len(others) == len(names):
		return "", usage("", "--to %s: there is no such store, one of %s", wire.Printable(to, 100), strings.Join(names, ", "))
	case from == to:
		return "", usage("", "store %s is the one that the jobs are in", to)
	case from == "" && len(others) > 1:
		return "", usage("", "from which store? Name it with --%s, one of %s", config.StoreFlag, strings.Join(others, ", "))
	case from == "":
		from = others[0]
	}
	return from, nil
}
