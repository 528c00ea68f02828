package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

// runQueues are the flags for the queues of a run.
type runQueues struct{ queue, further string }

func (o *runQueues) add(f *flagSet) {
	f.StringVar(&o.queue, "queue", "", "queue of the first slice (default: the class's)")
	f.StringVar(&o.further, "requeue-queue", "", "queue of further slices (default: the class's)")
	f.completers["requeue-queue"] = f.completers["queue"]
}

func (o *runQueues) options() (opts []longjob.EnqueueOption) {
	if o.queue != "" {
		opts = append(opts, longjob.Queue(o.queue))
	}
	if o.further != "" {
		opts = append(opts, longjob.RequeueQueue(o.further))
	}
	return opts
}

type startFlags struct {
	runQueues
	list, tenant     string
	debounce, always bool
}

func (a *cli) startLongjobCommand() *cobra.Command {
	var o startFlags
	c := a.command(verb{
		use: "start CLASS [ARG…]", kind: adds, short: "enqueue a run of a long job",
		long: `Enqueue a run of a long job, unless one with the same arguments waits or runs.
ARGs are read as by "enqueue". With --debounce one more run follows one that
has begun; with --always that one is superseded: it saves nothing more and
ends.`,
		example: "longjobs start Migrate north\nlongjobs start Migrate --json '[\"north\"]' -o name",
		args:    someClass,
		flags: func(f *flagSet) {
			o.add(f)
			f.StringVar(&o.tenant, "tenant", "", "tenant of the run: runs of one tenant take turns")
			f.StringVar(&o.list, "json", "", "all arguments as a JSON `list` (- reads standard input)")
			f.BoolVar(&o.debounce, "debounce", false, "follow a run that has begun with one more")
			f.BoolVar(&o.always, "always", false, "supersede one that waits or runs")
		},
		do: func(c *cobra.Command, args []string) error {
			if o.debounce && o.always {
				return usage("", "give either --debounce or --always")
			}
			parsed, err := jobArgs(a.stdin, args[1:], o.list, c.Flags().Changed("json"))
			if err != nil {
				return err
			}
			return a.startLongjob(c, args[0], parsed, o)
		},
	})
	c.ValidArgsFunction = a.completeClass
	return c
}

func (a *cli) startLongjob(c *cobra.Command, class string, args resqued.Args, f startFlags) error {
	cfg, err := a.load(c)
	if _, ok := errors.AsType[*severalStores](err); ok {
		cfg, _, err = a.loadFor(c, class, f.queue)
	}
	if err != nil {
		return err
	}
	classes := a.program().Classes(cfg.Config)
	if known, ok := classes.Lookup(class); ok && !known.Resumes {
		return usage("Its jobs are enqueued by: "+a.again()+" enqueue", "class %q is not a long job", wire.Printable(class, 200))
	}
	s, err := app.OpenStore(cfg.Config, "resqued-cli")
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	client := longjob.ClientFrom(longstore.New(s.Redis()).InContext(context.Background()), classes)
	opts := f.options()
	if f.tenant != "" {
		opts = append(opts, longjob.Tenant(f.tenant))
	}
	enqueue := client.EnqueueUnique
	switch {
	case f.debounce:
		enqueue = client.EnqueueDebounce
	case f.always:
		enqueue = client.Enqueue
	}
	res, err := enqueue(c.Context(), class, args, opts...)
	switch {
	case errors.Is(err, longjob.ErrNoQueue):
		return noQueueOf(class)
	case err != nil:
		return fmt.Errorf("%w (the run may have been enqueued anyway)", err)
	}
	runs := pushed{}
	if res.Outcome == longjob.OutcomeNew {
		own := resqued.Class{Queue: f.queue, FurtherQueue: f.further}
		if known, ok := classes.Lookup(class); ok {
			own.Queue, own.FurtherQueue = cmp.Or(f.queue, known.Queue), cmp.Or(f.further, known.FurtherQueue)
		}
		for _, queue := range []string{own.Queue, cmp.Or(own.FurtherQueue, own.Queue)} {
			runs.add(queue, class)
		}
	}
	by := a.workedBy(c.Context(), cfg.Config, runs)
	defer a.warnUnworked(by)
	how := map[longjob.Outcome]string{
		longjob.OutcomeNew: "enqueued", longjob.OutcomeExisting: "not enqueued, it waits or runs:", longjob.OutcomeRerun: "one more follows",
	}[res.Outcome]
	return a.result(map[string]any{"uuid": res.UUID, "outcome": res.Outcome, "worked": by.Worked, "warnings": by.Warnings},
		res.UUID+"\n", fmt.Sprintf("%s %s %s\n", how, jobText(class, args.String()), res.UUID))
}
