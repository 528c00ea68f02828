package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

const longLimit = 100

func (a *cli) longjobsCommand() *cobra.Command {
	var o longjob.Filter
	statuses := []string{"queued", "running", "paused", "completed", "failed", "cancelled", "superseded"}
	subs := []*cobra.Command{a.showLongjobCommand(), a.startLongjobCommand(), a.recurringCommand()}
	for _, v := range longjobVerbs() {
		subs = append(subs, a.editLongjobsCommand(v))
	}
	return a.lists(verb{
		use: "longjobs", kind: shows, short: "list, start, pause, requeue or cancel long jobs",
		long: `List runs of long jobs: first those that wait or run, with their progress and
the estimated time left in their last step, then those that have ended.`,
		example: "longjobs\nlongjobs --watch\nlongjobs show 6f1c",
		flags: func(f *flagSet) {
			f.StringVar(&o.Class, "class", "", "only this class")
			f.StringVar((*string)(&o.Status), "status", "", "only queued, running, paused, completed, failed, cancelled or superseded")
			f.check(func() error {
				if o.Status != "" && !slices.Contains(statuses, string(o.Status)) {
					return usage("", "--status %q: use queued, running, paused, completed, failed, cancelled or superseded", string(o.Status))
				}
				return nil
			})
			f.completers["status"] = words(statuses...)
			f.limit(&o.Limit, longLimit, 1, "most runs")
		},
		run: func(ctx context.Context, s *session, _ []string) error { return listLongjobs(ctx, s, o) },
	}, "list long jobs (default)", subs...)
}

// longjobs returns a client for long jobs whose classes have handlers.
func (s *session) longjobs(ctx context.Context, handlers *resqued.Handlers) *longjob.Client {
	return longjob.ClientFrom(longstore.New(s.Redis()).InContext(ctx), handlers)
}

func listLongjobs(ctx context.Context, s *session, f longjob.Filter) error {
	runs, more, err := view.LongJobs(ctx, s.longjobs(ctx, s.a.handlers), f)
	if err != nil {
		return err
	}
	l := newListing("UUID, CLASS, STATUS, PROGRESS, >UNITS, >SLICES, >RATE, >ETA, >SEEN, MESSAGE, +QUEUE, +TENANT, +ARGS").paints("STATUS", statusColours)
	l.partial = more
	now := time.Now()
	for _, v := range runs {
		step, rate, eta := progress(&v)
		message := v.Message
		switch {
		case v.Refused > 0:
			message = v.Warning
		case v.Error != "":
			message, _, _ = strings.Cut(v.Error, "\n")
		}
		l.add(v.UUID, v, v.UUID, v.Class, string(v.Status), step, fmt.Sprint(v.Units), fmt.Sprint(v.Slices), rate, eta,
			sinceP(v.Seen, now), message, v.Queue, v.Tenant, string(v.Args))
	}
	if s.forPeople() {
		switch {
		case len(runs) == 0 && (f.Class != "" || f.Status != ""):
			s.note("no such long jobs")
		case len(runs) == 0:
			s.note("no long jobs")
		case more:
			s.note("only %d are shown; see --limit", f.Limit)
		}
	}
	return s.print(l)
}

// findLongjob finds a run by its uuid or a prefix of it.
func findLongjob(ctx context.Context, s *session, name string) (longjob.Run, error) {
	run, err := view.FindLongJob(ctx, s.longjobs(ctx, s.a.handlers), name)
	return run, s.lookup(err, "longjobs")
}

var statusColours = colours{
	string(longjob.StatusFailed): red, string(longjob.StatusCompleted): green, string(longjob.StatusPaused): yellow,
	string(longjob.StatusCancelled): yellow, string(longjob.StatusSuperseded): yellow,
}

// progress returns a run's current step in words, its rate, and the remaining time.
func progress(v *view.LongJob) (text, rate, eta string) {
	step, ok := v.Step()
	if !ok {
		return "", "", ""
	}
	text = fmt.Sprintf("%s %d", step.Name, step.Done)
	if step.Total > 0 {
		text += fmt.Sprintf("/%d", step.Total)
	}
	if n := step.PerSecond(); n > 0 {
		rate = view.Rate(n)
	}
	if v.ETA != nil {
		eta = view.Left(time.Duration(*v.ETA * float64(time.Second)))
	}
	return text, rate, eta
}
