package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
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

type longjobVerb struct {
	name, done, short, long string
	event                   store.EventKind
	do                      func(client *longjob.Client, ctx context.Context, uuid string) error
	// still is the note if it was done although a slice is still running; empty = it must not be.
	still string
}

func longjobVerbs() []longjobVerb {
	return []longjobVerb{
		{
			name: "requeue", done: "requeued", event: store.EventRequeued, short: "continue failed or cancelled long jobs", do: (*longjob.Client).Requeue,
			long: `Continue failed or cancelled runs from where they were. A run is refused while
its last slice still runs.`,
		},
		{
			name: "cancel", done: "cancelled", event: store.EventCanceled, short: "end long jobs for good", do: (*longjob.Client).Cancel,
			long: `End waiting or running runs for good. A running slice saves nothing more; it
ends within seconds if its code listens.`,
			still: "the code of its last slice runs still",
		},
		{
			name: "pause", done: "paused", event: store.EventPaused, short: "pause long jobs", do: (*longjob.Client).Pause,
			long: `Pause waiting or running runs until "longjobs resume". They keep their state
for any time; a running slice ends before its next unit. "longjobs start" still
finds a paused run, and you can cancel it.`,
			still: "its slice ends before the next unit",
		},
		{
			name: "resume", done: "resumed", event: store.EventResumed, short: "continue paused long jobs", do: (*longjob.Client).Resume,
			long: "Continue paused runs from where they were.",
		},
	}
}

// editLongjobsCommand makes a verb, such as "longjobs cancel".
func (a *cli) editLongjobsCommand(v longjobVerb) *cobra.Command {
	return a.command(verb{
		use: v.name + " UUID…", kind: edits, short: v.short, long: v.long, example: "longjobs " + v.name + " 6f1c", args: a.some("which?", "longjobs"),
		run: func(ctx context.Context, s *session, args []string) error {
			var changed []string
			for _, arg := range args {
				run, err := findLongjob(ctx, s, arg)
				if err != nil {
					return err
				}
				if err := editLongjob(ctx, s, v, run); err != nil {
					return err
				}
				changed = append(changed, run.UUID)
				s.did(v.event, "long job "+run.UUID, run.Class, 1)
			}
			return s.result(map[string][]string{v.done: changed}, strings.Join(changed, "\n")+"\n", v.done+" "+plural(len(changed), "long job")+"\n")
		},
	})
}

func editLongjob(ctx context.Context, s *session, v longjobVerb, run longjob.Run) error {
	err := v.do(s.longjobs(ctx, s.a.handlers), ctx, run.UUID)
	if errors.Is(err, longjob.ErrEnding) && v.still != "" {
		s.note("%s is %s; %s", run.UUID, v.done, v.still)
		err = nil
	}
	switch {
	case errors.Is(err, longjob.ErrNotFound):
		return notFound("long job", run.UUID, nil, s.again()+" longjobs")
	case errors.Is(err, longjob.ErrOver), errors.Is(err, longjob.ErrNotOver), errors.Is(err, longjob.ErrEnding), errors.Is(err, longjob.ErrNewer),
		errors.Is(err, longjob.ErrNotPaused):
		return &problem{exit: exitFailed, code: "state", lines: []string{fmt.Sprintf("cannot %s %s: it is %s", v.name, run.UUID, run.Status), err.Error()}, cause: err}
	}
	return err
}
