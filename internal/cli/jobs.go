package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/view"
)

const jobLimit = 1000

type jobFilter struct{ view.JobFilter }

func (o *jobFilter) add(f *flagSet) {
	f.StringSliceVar(&o.Queues, "queue", nil, "only these `queues`")
	f.StringSliceVar(&o.Classes, "class", nil, "only these `classes`")
	f.span(&o.OlderThan, "older-than", 0, "only jobs running longer than this")
	f.limit(&o.Limit, jobLimit, 1, "most jobs, longest running first")
}

// given reports whether a flag selects jobs.
func (o *jobFilter) given(c *cobra.Command) bool {
	return slices.ContainsFunc([]string{"queue", "class", "older-than"}, c.Flags().Changed)
}

func (a *cli) jobsCommand() *cobra.Command {
	var filter jobFilter
	show := a.command(verb{
		use: "show ID…", kind: shows, short: "show running jobs in full", args: a.some("which job?", "jobs"), names: runNames, run: showJobs,
	})
	return a.lists(verb{
		use: "jobs", kind: shows, short: "list or kill running jobs; find, move or remove waiting ones",
		long: `List running jobs, longest running first. STATE is

  running
  killed   it was told to stop, and has not stopped yet
  stale    its process has no lease in Redis: it is dead, or cut off
  foreign  its worker is not resqued's

ID is the id in the payload, or else names the process and this run. Four
characters or more from its beginning or end are enough. For waiting jobs see
"jobs find" and "queues show".`,
		example: "jobs --class Import\njobs show 9f1c55d0a7b2\njobs kill 9f1c55d0a7b2",
		flags:   filter.add,
		run:     func(ctx context.Context, s *session, _ []string) error { return listJobs(ctx, s, &filter) },
	}, "list running jobs (default)", show, a.jobsKillCommand(), a.jobsFindCommand(), a.editWaitingCommand(false), a.editWaitingCommand(true))
}

func listJobs(ctx context.Context, s *session, filter *jobFilter) error {
	all, err := view.Jobs(ctx, s)
	if err != nil {
		return err
	}
	views, cut := filter.Apply(all)
	l := jobListing(views)
	l.partial = cut
	if err := s.print(l); err != nil {
		return err
	}
	noteParked(ctx, s)
	if cut {
		s.note("only %s are shown; there are more, see --limit", plural(len(views), "job"))
	}
	if len(views) == 0 && s.forPeople() {
		if len(all) > 0 {
			s.note("none of the %s that run", plural(len(all), "job"))
		} else {
			s.note("no job runs")
		}
	}
	return nil
}

func jobListing(views []*view.Job) *listing {
	l := newListing("ID, CLASS, QUEUE, STATE, >AGE, WORKER, +ARGS, +PROCESS, +LOCK").paints("STATE", jobColours)
	for _, v := range views {
		l.add(v.Name, v, v.Short, v.Class, v.Queue, v.State, view.Age(time.Duration(v.AgeS)*time.Second), view.WorkerText(v.Worker),
			string(v.Args), v.Run.Proc, v.LockKey())
	}
	return l
}

var jobColours = colours{view.JobRuns: green, view.JobKilled: yellow, view.JobStale: red}
