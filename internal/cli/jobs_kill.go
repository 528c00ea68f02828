package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	lookEvery = 100 * time.Millisecond
	// seeAndDie is what a kill takes in addition to the grace: processes look for requests each
	// second, and the master has to recover a killed one.
	seeAndDie = 5 * time.Second
	// defaultTerm is resque_term_timeout if a master does not report it.
	defaultTerm = 30 * time.Second
)

// Outcomes of a kill besides the store's, when the command ends.
const (
	howAsked      = "asked"      // the command did not wait
	howRuns       = "running"    // it is still running
	howRecovering = "recovering" // its process is dead, and the job is being recovered
)

type killView struct {
	ID     string `json:"id"`
	Killed bool   `json:"killed"`
	// How is cancelled, process_recycled or finished; or, without a seen end, running, asked or
	// recovering.
	How          string `json:"how"`
	SiblingsLost int    `json:"siblings_lost"`
	// Requeued: the job is back in its queue.
	Requeued bool `json:"requeued"`

	job   *view.Job
	state store.KillState // the last one seen
	phase string          // the last one printed
}

type killOptions struct {
	consent
	filterFlags
	force           time.Duration
	requeue, noWait bool
}

func (a *cli) jobsKillCommand() *cobra.Command {
	o := killOptions{force: store.KillGrace}
	wait := true
	return a.command(verb{
		use: "kill ID…", kind: edits, short: "kill running jobs, wherever they run",
		long: `Kill running jobs on any machine, through Redis. The request names this run of
the job, so it never hits the next one.

The job is told to stop: the context of a Go handler ends; the processes of a
command get TERM, and KILL after half of --force-after at the latest. If it
still runs after --force-after, its worker process takes no new jobs, lets its
other jobs finish (for resque_term_timeout at most), and is ended and replaced.
A killed job is recorded as failed, or with --requeue goes back to the tail of
its queue.

The command waits until the jobs have ended, and reports how:

  cancelled         the job stopped
  process_recycled  it did not; siblings_lost counts the other jobs of its
                    process that failed with it, normally none
  finished          it finished by itself

Exit code 1: a job still runs.`,
		example: "jobs kill 9f1c55d0a7b2\njobs kill 9f1c55d0a7b2 --force-after 1m --requeue\njobs kill --class Import --until 1h --dry-run",
		names:   runNames,
		args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !o.filtered():
				return usage("See: "+c.Parent().CommandPath(), "which job?")
			case len(args) > 0 && o.filtered():
				return usage("", "name the jobs or filter them, not both")
			case o.force < 0 || o.force > 24*time.Hour:
				return usage("", "--force-after %s: use 0s to 24h", o.force)
			case o.noWait && wait && c.Flags().Changed("wait"):
				return usage("", "--wait and --no-wait: use one of them")
			}
			return nil
		},
		flags: func(f *flagSet) {
			o.filterFlags.add(f, filter.Running)
			f.limit(&o.Limit, jobLimit, 1, "most jobs, longest running first")
			f.span(&o.force, "force-after", store.KillGrace, "time for a job to stop before its process is replaced")
			f.BoolVar(&o.requeue, "requeue", false, "put jobs back into their queues instead of failing them")
			f.BoolVar(&wait, "wait", true, "wait until the jobs have ended")
			f.BoolVar(&o.noWait, "no-wait", false, "do not wait")
			o.consent.add(f)
			f.Lookup("yes").Usage = "do not ask, with filters"
		},
		run: func(ctx context.Context, s *session, args []string) error {
			o.noWait = o.noWait || !wait
			return killJobs(ctx, s, args, &o)
		},
	})
}

func killJobs(ctx context.Context, s *session, names []string, o *killOptions) error {
	all, err := view.Jobs(ctx, s)
	if err != nil {
		return err
	}
	m, err := o.matcher(ctx)
	if err != nil {
		return err
	}
	jobs, err := victims(s, all, names, o, m)
	if err != nil {
		return err
	}
	if o.dryRun || len(jobs) == 0 {
		if len(jobs) == 0 {
			s.note("no running job matches")
		}
		return s.print(jobListing(jobs))
	}
	if err := s.a.confirm(o.yes || len(names) > 0, fmt.Sprintf("kill %s: %s", plural(len(jobs), "running job"), nameRuns(jobs))); err != nil {
		return err
	}
	kills, pending, err := ask(ctx, s, jobs, o)
	if len(kills) > 0 {
		s.did(store.EventKilled, "jobs", nameRuns(jobs[:len(kills)]), len(kills))
	}
	if err == nil && !o.noWait {
		err = awaitKills(ctx, s, pending, o)
	}
	refused := s.tellKills(kills, len(names) == 1) // also after an error
	if err != nil {
		return err
	}
	return refused
}

func victims(s *session, all []*view.Job, names []string, o *killOptions, m *filter.Matcher) ([]*view.Job, error) {
	jobs, err := pickJobs(s, all, names)
	if err != nil {
		return nil, err
	}
	for _, v := range jobs {
		if v.State == view.JobForeign {
			return nil, failure("foreign", "Only its own program can kill it.",
				"job %s runs in %q, which is not a worker of resqued", runName(v), wire.Printable(v.Worker, 200))
		}
	}
	if len(names) == 0 {
		ours := slices.DeleteFunc(all, func(v *view.Job) bool { return v.State == view.JobForeign })
		cut := false
		if jobs, cut = view.Running(ours, m, o.Limit); cut {
			s.note("only the first %s; see --limit", plural(len(jobs), "job"))
		}
	}
	return jobs, nil
}

// ask writes the requests to Redis. pending are the kills whose end is awaited.
func ask(ctx context.Context, s *session, jobs []*view.Job, o *killOptions) (kills, pending []*killView, err error) {
	for _, v := range jobs {
		k := &killView{ID: v.ID, How: howAsked, job: v}
		outcome, err := s.RequestKill(ctx, v.Run, store.KillRequest{Grace: o.force, Requeue: o.requeue})
		if err != nil {
			return kills, nil, err
		}
		kills = append(kills, k)
		switch outcome {
		case store.KillGone:
			k.How = store.HowFinished
		case store.KillDead:
			k.How = howRecovering
		default:
			pending = append(pending, k)
		}
	}
	return kills, pending, nil
}

// confirm asks the user at the terminal, unless that is agreed. Without a terminal it requires --yes.
func (a *cli) confirm(agreed bool, what string) error {
	if agreed {
		return nil
	}
	in, ok := a.stdin.(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(a.stderr) {
		return usage("Use --dry-run to see them, --yes to do it.", "this would %s", what)
	}
	_, _ = fmt.Fprintf(a.stderr, "%s? [y/N] ", what)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return failure("refused", "", "nothing was done")
}

func (out *output) tellKills(kills []*killView, single bool) error {
	refused := &problem{exit: exitFailed}
	l := &listing{}
	for _, k := range kills {
		l.items = append(l.items, k)
		job := runName(k.job)
		if k.Killed || k.How == store.HowFinished {
			l.names = append(l.names, k.job.Name)
		}
		back := ""
		if k.Requeued {
			back = ", and put back into " + wire.Printable(k.job.Queue, 200)
		}
		switch k.How {
		case store.HowCancelled:
			l.lines.WriteString("cancelled " + job + back + "\n")
		case store.HowRecycled:
			fmt.Fprintf(&l.lines, "killed %s with its process%s; siblings lost: %d\n", job, back, k.SiblingsLost)
		case store.HowFinished:
			l.lines.WriteString("finished by itself: " + job + "\n")
		case howAsked:
			l.lines.WriteString("asked to stop: " + job + "\n")
		case howRecovering:
			refused.code = "recovering"
			refused.lines = append(refused.lines, fmt.Sprintf("the process of %s is dead and is being recovered: look again in a moment", job))
		default:
			refused.code = "running"
			refused.lines = append(refused.lines, fmt.Sprintf("%s still runs: %s", job, k.why()))
		}
	}
	var err error
	if single && len(kills) == 1 && out.flags.output == outJSON {
		err = out.printJSON(kills[0])
	} else {
		err = out.tell(l)
	}
	if err != nil || len(refused.lines) == 0 {
		return err
	}
	return refused
}

func (k *killView) why() string {
	switch {
	case k.state.Stubborn:
		return "its process ends as soon as its other jobs have finished"
	case k.state.Told:
		return "it was told to stop, and its process goes when its time is up"
	}
	return "its process has not seen the request yet; see: resqued workers"
}

// awaitKills waits until the jobs have ended and prints the progress to a terminal. It gives up after
// the grace, or later if a process waits for its other jobs.
func awaitKills(ctx context.Context, s *session, pending []*killView, o *killOptions) error {
	until := time.Now().Add(o.force + seeAndDie)
	recycling := time.Duration(-1)
	for {
		names := make([]store.RunName, len(pending))
		for i, k := range pending {
			k.How = howRuns
			names[i] = k.job.Run
		}
		states, err := s.KillStates(ctx, names)
		if err != nil {
			return err
		}
		var left []*killView
		for i, k := range pending {
			if k.see(states[i]); k.How == howRuns {
				left = append(left, k)
			}
			s.tellPhase(k, o)
			if k.state.Stubborn && recycling < 0 {
				recycling = termTimeout(ctx, s)
				until = time.Now().Add(recycling + seeAndDie)
			}
		}
		if pending = left; len(pending) == 0 || time.Now().After(until) {
			return nil
		}
		if err := nap(ctx, lookEvery); err != nil {
			return err
		}
	}
}

func (k *killView) see(state store.KillState) {
	switch answer := state.Answer; {
	case state.Running:
		k.How = howRuns
	case answer == nil:
		k.How = store.HowFinished
	default:
		k.How, k.Requeued, k.SiblingsLost = answer.How, answer.Requeued, answer.SiblingsLost
		k.Killed = answer.How != store.HowFinished
	}
	k.state = state
}

func (out *output) tellPhase(k *killView, o *killOptions) {
	phase := ""
	switch {
	case k.How != howRuns:
	case k.state.Stubborn:
		phase = "still running; its process is replaced when its other jobs have finished"
	case k.state.Told:
		phase = "told to stop; still running, its process goes in " + o.force.String()
	}
	if phase == "" || phase == k.phase {
		return
	}
	k.phase = phase
	if isTerminal(out.stderr) && out.flags.output != outJSON {
		out.note("%s: %s", runName(k.job), phase)
	}
}

// termTimeout is how long a process waits for its other jobs: the masters' longest
// resque_term_timeout.
func termTimeout(ctx context.Context, s *session) time.Duration {
	longest := time.Duration(0)
	masters, _ := s.MasterList(ctx)
	for _, fields := range masters {
		if ms, err := strconv.ParseInt(fields["term_timeout_ms"], 10, 64); err == nil {
			longest = max(longest, time.Duration(ms)*time.Millisecond)
		}
	}
	if longest == 0 {
		return defaultTerm
	}
	return longest
}
