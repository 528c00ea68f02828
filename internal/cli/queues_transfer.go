package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

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
	var jobs int64
	for _, r := range []*config.Resolved{source, target} {
		err := a.inStore(c, r, func(ctx context.Context, s *session) (err error) {
			if r == source {
				jobs, err = s.Length(ctx, queue)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	here, err := a.client(source.Config)
	if err != nil {
		return err
	}
	defer func() { _ = here.Close() }()
	there, err := a.client(target.Config)
	if err != nil {
		return err
	}
	defer func() { _ = there.Close() }()
	v := &waitingEditView{Queue: from + "/" + queue, To: to + "/" + queue, Jobs: jobs, DryRun: e.dryRun}
	if e.to = v.To; !target.Home(queue) && !back {
		home := config.RouteOf(target.Routes, queue)
		if home == "" {
			home = "no store"
		}
		a.warn("queue %s belongs to %s: new jobs do not go to %s, see routes", wire.Printable(queue, 100), home, to)
	}
	question := e.question(v)
	if back {
		question = "put jobs of queue " + queue + " that are on their way to store " + to + " back, which run twice if it is not gone for good"
	}
	switch {
	case e.dryRun && back:
		return usage("", "--back does not go with --dry-run; see: %s doctor", a.name)
	case e.dryRun:
		return e.tell(&a.output, a.again(), v)
	}
	if err := a.confirm(e.yes || jobs == 0 && !back, question); err != nil {
		return err
	}
	ctx, stop := interruptible(c.Context())
	defer stop()
	if back {
		n, err := here.MoveQueueBack(ctx, queue, there)
		if err != nil {
			return err
		}
		a.did(store.EventMoved, "queue "+queue, plural(int(n), "job")+" back, not to store "+to, int(n))
		e.to = v.Queue
		return e.tell(&a.output, a.again(), &waitingEditView{Queue: v.To, To: v.Queue, Jobs: n})
	}
	return a.transfer(ctx, e, here, there, queue, to, v)
}

func (a *cli) transfer(ctx context.Context, e *waitingEdit, here, there *client.Client, queue, to string, v *waitingEditView) error {
	bar := a.progressOf("moved", int(v.Jobs))
	report, err := here.MoveQueueTo(ctx, queue, there, client.MoveOptions{Name: to, Progress: func(moved int64) { bar.at(int(moved)) }})
	bar.done()
	a.did(store.EventMoved, "queue "+queue, plural(int(report.Done), "job")+" to "+v.To, int(report.Done))
	if err != nil {
		return fmt.Errorf("%w (moved until then: %d; give the command again for the rest, of which some may be on their way)", interrupted(ctx, err), report.Done)
	}
	moved := e.view(queue, report)
	moved.Queue, moved.To = v.Queue, v.To
	return e.tell(&a.output, a.again(), moved)
}

func (a *cli) sourceStore(c *cobra.Command, to string) (from string, err error) {
	r, err := a.loadAs(c, config.Options{})
	if err != nil {
		return "", err
	}
	var names []string
	for _, route := range r.Routes {
		names = append(names, route.Store)
	}
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
