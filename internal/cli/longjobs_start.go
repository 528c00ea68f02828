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

type startFlags struct {
	queue, requeueQueue, list, tenant string
	debounce, always                  bool
}

func (a *cli) startLongjobCommand() *cobra.Command {
	var f startFlags
	c := &cobra.Command{
		Use: "start CLASS [ARG…]", Annotations: adds, Short: "enqueue a run of a long job",
		Long: `Enqueue a run of a long job, unless one with the same arguments waits or runs.
ARGs are read as by "enqueue". With --debounce one more run follows one that
has begun; with --always that one is superseded: it saves nothing more and
ends.`,
		Example: "  " + a.name + " longjobs start Migrate north\n  " + a.name + " longjobs start Migrate --json '[\"north\"]' -o name",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("See: "+c.CommandPath()+" --help", "which class?")
			}
			return nil
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.live(a.classNames)(c, args, prefix)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.debounce && f.always {
				return usage("", "give either --debounce or --always")
			}
			parsed, err := a.jobArgs(args[1:], f.list, c.Flags().Changed("json"))
			if err != nil {
				return err
			}
			return a.startLongjob(c, args[0], parsed, f)
		},
	}
	c.Flags().StringVar(&f.queue, "queue", "", "queue of the first slice (default: the class's)")
	c.Flags().StringVar(&f.requeueQueue, "requeue-queue", "", "queue of further slices (default: the class's)")
	c.Flags().StringVar(&f.tenant, "tenant", "", "tenant of the run: runs of one tenant take turns")
	c.Flags().StringVar(&f.list, "json", "", "all arguments as a JSON `list` (- reads standard input)")
	c.Flags().BoolVar(&f.debounce, "debounce", false, "follow a run that has begun with one more")
	c.Flags().BoolVar(&f.always, "always", false, "supersede one that waits or runs")
	_ = c.RegisterFlagCompletionFunc("tenant", cobra.NoFileCompletions)
	for _, name := range []string{"queue", "requeue-queue"} {
		_ = c.RegisterFlagCompletionFunc(name, a.live(queueNames))
	}
	_ = c.RegisterFlagCompletionFunc("json", cobra.NoFileCompletions)
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
	var opts []longjob.EnqueueOption
	if f.queue != "" {
		opts = append(opts, longjob.Queue(f.queue))
	}
	if f.requeueQueue != "" {
		opts = append(opts, longjob.RequeueQueue(f.requeueQueue))
	}
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
		return usage("Pass --queue NAME, or set the class's queue in the handlers section of the configuration.",
			"no queue is known for class %q", wire.Printable(class, 200))
	case err != nil:
		return fmt.Errorf("%w (the run may have been enqueued anyway)", err)
	}
	runs := pushed{}
	if res.Outcome == longjob.OutcomeNew {
		own := resqued.Class{Queue: f.queue, FurtherQueue: f.requeueQueue}
		if known, ok := classes.Lookup(class); ok {
			own.Queue, own.FurtherQueue = cmp.Or(f.queue, known.Queue), cmp.Or(f.requeueQueue, known.FurtherQueue)
		}
		for _, queue := range []string{own.Queue, cmp.Or(own.FurtherQueue, own.Queue)} {
			runs.add(queue, class)
		}
	}
	by := a.workedBy(c.Context(), cfg.Config, runs)
	defer a.warnUnworked(by)
	switch {
	case a.flags.output == outJSON:
		return a.printJSON(map[string]any{"uuid": res.UUID, "outcome": res.Outcome, "worked": by.Worked, "warnings": by.Warnings})
	case a.flags.output == outName:
		return a.printText(res.UUID + "\n")
	case a.flags.quiet:
		return nil
	}
	how := map[longjob.Outcome]string{
		longjob.OutcomeNew: "enqueued", longjob.OutcomeExisting: "not enqueued, it waits or runs:", longjob.OutcomeRerun: "one more follows",
	}[res.Outcome]
	return a.printText(fmt.Sprintf("%s %s %s\n", how, jobText(class, args.String()), res.UUID))
}
