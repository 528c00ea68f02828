package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// jobLimit is how many running jobs are listed unless told otherwise.
const jobLimit = 1000

// The states of running jobs.
const (
	jobRuns    = "running"
	jobKilled  = "killed"  // it was told to stop
	jobStale   = "stale"   // its process has no lease: dead, or cut off from Redis
	jobForeign = "foreign" // its worker is not resqued's
)

// runView is one running job as people see it.
type runView struct {
	// ID is the payload's own, or else the process and the token of this run.
	ID    string          `json:"id"`
	Class string          `json:"class"`
	Args  json.RawMessage `json:"args"`
	Queue string          `json:"queue"`
	State string          `json:"state"`
	// AgeS is for how many seconds it has been running.
	AgeS   int64  `json:"age_s"`
	Worker string `json:"worker"`

	// The rest is only shown for single jobs.
	Process string `json:"process,omitempty"`
	Token   string `json:"token,omitempty"`
	Lock    string `json:"lock,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	Deaths  int    `json:"deaths,omitempty"`
	Payload string `json:"payload,omitempty"`

	run     store.RunName // zero of a foreign worker's job
	started time.Time
	payload []byte
	record  store.Reserved
	// short is what stands for it in tables, name what -o name prints.
	short, name string
}

// jobFilter picks running jobs.
type jobFilter struct {
	queues, classes []string
	olderThan       time.Duration
	limit           int
}

func (f *jobFilter) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.queues, "queue", nil, "only jobs of these `queues`")
	c.Flags().StringSliceVar(&f.classes, "class", nil, "only jobs of these `classes`")
	c.Flags().DurationVar(&f.olderThan, "older-than", 0, "only jobs that have been running for longer")
	c.Flags().IntVar(&f.limit, "limit", jobLimit, "how many jobs at most, those that run longest")
}

// given reports whether the filter says which jobs are meant.
func (f *jobFilter) given(c *cobra.Command) bool {
	return slices.ContainsFunc([]string{"queue", "class", "older-than"}, c.Flags().Changed)
}

func (f *jobFilter) check() error {
	if f.limit < 1 {
		return usage("", "--limit %d: use 1 or more", f.limit)
	}
	return nil
}

// apply returns the jobs that pass; cut says that there were more.
func (f *jobFilter) apply(all []*runView) (picked []*runView, cut bool) {
	for _, v := range all {
		switch {
		case len(f.queues) > 0 && !slices.Contains(f.queues, v.Queue),
			len(f.classes) > 0 && !slices.Contains(f.classes, v.Class),
			time.Duration(v.AgeS)*time.Second < f.olderThan:
		case len(picked) == f.limit:
			return picked, true
		default:
			picked = append(picked, v)
		}
	}
	return picked, false
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
		Use: "jobs", Short: "list running jobs, show one, or kill one", RunE: ls,
		Long: `List the jobs that are running, those first that have been running longest. STATE is

  running
  killed   it was told to stop, and has not stopped yet
  stale    its process has no lease in Redis: it is dead, or cut off
  foreign  its worker is not resqued's

ID is the one in the job's payload, or else names its process and this run of it. A
part of it, four characters or more from its beginning or its end, is enough to find
the job again. Jobs that wait are shown by "queues show".`,
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
		Use: "ls", Short: "list running jobs (what the bare noun does)", Args: exactly(0, "no arguments"), RunE: ls,
	}
	filter.add(list)
	show := &cobra.Command{
		Use: "show ID…", Short: "show all that is known of running jobs",
		Args: someJobs, ValidArgsFunction: a.live(runNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.showJobs(ctx, s, args) })
		},
	}
	for _, c := range []*cobra.Command{parent, list} {
		a.completeFilter(c)
	}
	parent.AddCommand(list, show, a.jobsKillCommand())
	return parent
}

func (a *cli) completeFilter(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("queue", a.live(queueNames))
	_ = c.RegisterFlagCompletionFunc("class", a.live(a.classNames))
	_ = c.RegisterFlagCompletionFunc("older-than", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
}

// someJobs demands one job at least.
func someJobs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("See: "+c.Parent().CommandPath(), "which job?")
	}
	return nil
}

func (a *cli) listJobs(ctx context.Context, s *store.Store, filter *jobFilter) error {
	all, err := runs(ctx, s)
	if err != nil {
		return err
	}
	views, cut := filter.apply(all)
	if err := a.print(jobListing(views, cut)); err != nil {
		return err
	}
	a.noteParked(ctx, s)
	if cut {
		a.note("only %s are shown; there are more, see --limit", plural(len(views), "job"))
	}
	if len(views) == 0 && a.flags.output != outJSON && a.flags.output != outName {
		if len(all) > 0 {
			a.note("none of the %s that run", plural(len(all), "job"))
		} else {
			a.note("no job runs")
		}
	}
	return nil
}

func jobListing(views []*runView, cut bool) *listing {
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
		l.add(v.name, v, v.short, v.Class, v.Queue, v.State, age(time.Duration(v.AgeS)*time.Second), workerText(v.Worker),
			string(v.Args), v.run.Proc, v.record.LockKey)
	}
	return l
}

// runs returns all running jobs, those first that have been running longest.
func runs(ctx context.Context, s *store.Store) ([]*runView, error) {
	procs, err := s.ProcList(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := s.WorkerList(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	views := []*runView{}
	for _, p := range procs {
		for _, job := range p.Running {
			v := viewRun(job.Payload, job.Queue, job.Worker, job.StartedAt, now)
			v.run, v.record = store.RunName{Proc: p.Proc, Token: job.Token}, job
			if v.ID == "" {
				v.ID = v.run.String()
			}
			switch {
			case p.LeaseMS < now.UnixMilli():
				v.State = jobStale
			case p.Killed(job.Token):
				v.State = jobKilled
			default:
				v.State = jobRuns
			}
			views = append(views, v)
		}
	}
	views = append(views, foreignRuns(workers, now)...)
	slices.SortStableFunc(views, func(a, b *runView) int {
		return cmp.Or(a.started.Compare(b.started), strings.Compare(a.ID, b.ID))
	})
	shorten(views)
	return views, nil
}

// foreignRuns are the jobs of workers that are not resqued's, as they say.
func foreignRuns(workers []store.WorkerInfo, now time.Time) []*runView {
	var views []*runView
	for _, w := range workers {
		var said struct {
			Queue   string          `json:"queue"`
			RunAt   string          `json:"run_at"`
			Payload json.RawMessage `json:"payload"`
		}
		if name, err := wire.ParseWorkerID(w.ID); err == nil && name.Ours || json.Unmarshal([]byte(w.Working), &said) != nil {
			continue
		}
		started, _ := time.Parse(time.RFC3339, said.RunAt)
		v := viewRun(said.Payload, said.Queue, w.ID, started, now)
		v.State = jobForeign
		if v.ID == "" {
			v.ID = w.ID
		}
		views = append(views, v)
	}
	return views
}

func viewRun(payload []byte, queue, worker string, started, now time.Time) *runView {
	v := &runView{Queue: queue, Worker: worker, Args: json.RawMessage("null"), payload: payload, started: started}
	if !started.IsZero() {
		v.AgeS = int64(max(0, now.Sub(started)).Seconds())
	}
	if e, err := wire.Parse(payload, 0); err == nil {
		v.ID, v.Class, v.Args = e.ID, e.Class, json.RawMessage(e.Args.String())
	}
	return v
}

func jobColour(state string) string {
	switch state {
	case jobRuns:
		return green
	case jobKilled:
		return yellow
	case jobStale:
		return red
	}
	return ""
}
