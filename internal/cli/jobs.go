package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const jobLimit = 1000

func (a *cli) jobsCommand() *cobra.Command {
	var o filterFlags
	show := a.command(verb{
		use: "show ID…", kind: shows, short: "show running jobs, or else waiting ones, in full", args: a.some("which job?", "jobs"), names: runNames, run: showJobs,
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
		example: "jobs --class Import --until 1h\njobs show 9f1c55d0a7b2\njobs kill 9f1c55d0a7b2",
		flags: func(f *flagSet) {
			o.add(f, filter.Running)
			f.limit(&o.Limit, jobLimit, 1, "most jobs, longest running first")
		},
		run: func(ctx context.Context, s *session, _ []string) error { return listJobs(ctx, s, &o) },
	}, "list running jobs (default)", show, a.jobsKillCommand(), a.jobsFindCommand(), a.editWaitingCommand(false), a.editWaitingCommand(true))
}

func listJobs(ctx context.Context, s *session, o *filterFlags) error {
	m, err := o.matcher(ctx)
	if err != nil {
		return err
	}
	all, err := view.Jobs(ctx, s)
	if err != nil {
		return err
	}
	views, cut := view.Running(all, m, o.Limit)
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
		l.add(v.Name, v, v.Short, v.Class, v.Queue, v.State, view.Age(time.Duration(v.AgeS)*time.Second), wire.WorkerText(v.Worker),
			string(v.Args), v.Run.Proc, v.LockKey())
	}
	return l
}

var jobColours = colours{view.JobRuns: green, view.JobKilled: yellow, view.JobStale: red}

const (
	candidates = 8
	// payloadShown limits a payload in text, in bytes.
	payloadShown = 4096
)

// pickJobs returns the jobs that names match, each once.
func pickJobs(s *session, views []*view.Job, names []string) ([]*view.Job, error) {
	picked, err := view.FindJobs(views, names)
	if several, ok := errors.AsType[*view.AmbiguousJobError](err); ok {
		return nil, usage("Write more of it.", "%q may be any of %d running jobs: %s",
			wire.Printable(several.Name, 200), len(several.Jobs), nameRuns(several.Jobs))
	}
	return picked, s.lookup(err, "jobs")
}

// nameRuns lists jobs by names that distinguish them.
func nameRuns(views []*view.Job) string {
	var b strings.Builder
	for i, v := range views {
		if i == candidates {
			b.WriteString(" and " + strconv.Itoa(len(views)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(runName(v))
	}
	return b.String()
}

func runName(v *view.Job) string {
	return wire.Printable(v.Short, 200) + " " + jobText(v.Class, string(v.Args))
}

func runNames(ctx context.Context, s *store.Store) ([]string, error) {
	views, err := view.Jobs(ctx, s)
	var names []string
	for _, v := range views {
		names = append(names, v.Short, v.Name)
	}
	return names, err
}

func showJobs(ctx context.Context, s *session, names []string) error {
	all, err := view.Jobs(ctx, s)
	if err != nil {
		return err
	}
	if _, err := view.FindJobs(all, names); err != nil {
		if missing, ok := errors.AsType[*view.NotFoundError](err); ok {
			missing.Kind = "running or waiting job"
			return showWaiting(ctx, s, names, s.lookup(missing, "jobs"))
		}
	}
	views, err := pickJobs(s, all, names)
	if err != nil {
		return err
	}
	for _, v := range views {
		v.Detail()
	}
	return showEach(s.output, jobListing(views), views, s.runText)
}

func (out *output) runText(v *view.Job) string {
	d := details{at: 9}
	d.line("id", v.ID)
	d.line("class", v.Class)
	d.line("args", string(v.Args))
	d.line("queue", v.Queue)
	d.painted("state", out.paint(jobColours.of(v.State), v.State))
	if !v.Started.IsZero() {
		d.line("started", v.Started.UTC().Format(time.RFC3339)+" ("+view.Age(time.Duration(v.AgeS)*time.Second)+" ago)")
	}
	d.line("worker", v.Worker)
	d.line("process", v.Process)
	if r := v.Runner; r != nil {
		d.line("runner", fmt.Sprintf("%s, pid %d", r.Runner, r.PID))
	}
	d.line("token", v.Token)
	d.line("lock", v.Lock)
	if v.Fence > 0 {
		d.line("fence", strconv.FormatInt(v.Fence, 10))
	}
	if v.Deaths > 0 {
		d.line("deaths", strconv.Itoa(v.Deaths))
	}
	d.line("on death", v.OnDeath)
	d.line("payload", shownPayload(v.Payload))
	return d.String()
}

// shownPayload returns the beginning of a payload for people.
func shownPayload(payload string) string {
	if len(payload) <= payloadShown {
		return payload
	}
	return payload[:payloadShown] + "… (" + view.Size(int64(len(payload))) + " in all)"
}
