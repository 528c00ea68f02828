package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

const jobLimit = 1000

type jobFilter struct{ view.JobFilter }

func (f *jobFilter) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.Queues, "queue", nil, "only these `queues`")
	c.Flags().StringSliceVar(&f.Classes, "class", nil, "only these `classes`")
	durationVar(c.Flags(), &f.OlderThan, "older-than", 0, "only jobs running longer than this")
	c.Flags().IntVar(&f.Limit, "limit", jobLimit, "most jobs, longest running first")
}

// given reports whether a flag selects jobs.
func (f *jobFilter) given(c *cobra.Command) bool {
	return slices.ContainsFunc([]string{"queue", "class", "older-than"}, c.Flags().Changed)
}

func (f *jobFilter) check() error {
	if f.Limit < 1 {
		return usage("", "--limit %d: use 1 or more", f.Limit)
	}
	return nil
}

func (a *cli) jobsCommand() *cobra.Command {
	var filter jobFilter
	ls := func(c *cobra.Command, _ []string) error {
		if err := filter.check(); err != nil {
			return err
		}
		return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.listJobs(ctx, s, &filter) })
	}
	parent := &cobra.Command{
		Use: "jobs", Annotations: shows, Short: "list or kill running jobs; find, move or remove waiting ones", RunE: ls,
		Long: `List running jobs, longest running first. STATE is

  running
  killed   it was told to stop, and has not stopped yet
  stale    its process has no lease in Redis: it is dead, or cut off
  foreign  its worker is not resqued's

ID is the id in the payload, or else names the process and this run. Four
characters or more from its beginning or end are enough. For waiting jobs see
"jobs find" and "queues show".`,
		Example: "  " + a.name + " jobs --class Import\n  " + a.name + " jobs show 9f1c55d0a7b2\n  " + a.name + " jobs kill 9f1c55d0a7b2",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	}
	filter.add(parent)
	list := &cobra.Command{
		Use: "ls", Annotations: shows, Short: "list running jobs (default)", Args: exactly(0, "no arguments"), RunE: ls,
	}
	filter.add(list)
	show := &cobra.Command{
		Use: "show ID…", Annotations: shows, Short: "show running jobs in full",
		Args: someJobs, ValidArgsFunction: a.live(runNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.showJobs(ctx, s, args) })
		},
	}
	for _, c := range []*cobra.Command{parent, list} {
		a.completeFilter(c)
	}
	parent.AddCommand(list, show, a.jobsKillCommand(), a.jobsFindCommand(), a.editWaitingCommand(false), a.editWaitingCommand(true))
	return parent
}

func (a *cli) completeFilter(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("queue", a.live(queueNames))
	_ = c.RegisterFlagCompletionFunc("class", a.live(a.classNames))
	_ = c.RegisterFlagCompletionFunc("older-than", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
}

func someJobs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("See: "+c.Parent().CommandPath(), "which job?")
	}
	return nil
}

func (a *cli) listJobs(ctx context.Context, s *store.Store, filter *jobFilter) error {
	all, err := view.Jobs(ctx, s)
	if err != nil {
		return err
	}
	views, cut := filter.Apply(all)
	if err := a.print(jobListing(views, cut)); err != nil {
		return err
	}
	a.noteParked(ctx, s)
	if cut {
		a.note("only %s are shown; there are more, see --limit", plural(len(views), "job"))
	}
	if len(views) == 0 && a.forPeople() {
		if len(all) > 0 {
			a.note("none of the %s that run", plural(len(all), "job"))
		} else {
			a.note("no job runs")
		}
	}
	return nil
}

func jobListing(views []*view.Job, cut bool) *listing {
	l := &listing{partial: cut, columns: []column{
		{title: "ID"},
		{title: "CLASS"},
		{title: "QUEUE"},
		{title: "STATE", colour: jobColour},
		{title: "AGE", right: true},
		{title: "WORKER"},
		{title: "ARGS", wide: true},
		{title: "PROCESS", wide: true},
		{title: "LOCK", wide: true},
	}}
	for _, v := range views {
		l.add(v.Name, v, v.Short, v.Class, v.Queue, v.State, view.Age(time.Duration(v.AgeS)*time.Second), view.WorkerText(v.Worker),
			string(v.Args), v.Run.Proc, v.LockKey())
	}
	return l
}

func jobColour(state string) string {
	switch state {
	case view.JobRuns:
		return green
	case view.JobKilled:
		return yellow
	case view.JobStale:
		return red
	}
	return ""
}
