package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

func (a *cli) showLongjobCommand() *cobra.Command {
	return a.command(verb{
		use: "show UUID", kind: shows, short: "show a long job and its state", args: exactly(1, "the UUID of a long job, or its beginning"),
		run: func(ctx context.Context, s *session, args []string) error {
			run, err := findLongjob(ctx, s, args[0])
			if err != nil {
				return err
			}
			ended, err := view.EndedSlices(ctx, longstore.New(s.Redis()), run.UUID)
			if err != nil {
				s.warn("%s", err) // the run itself can be shown
			}
			return s.showLongjob(ctx, run, ended)
		},
	})
}

// shownSlices limits the ended slices in a table; -o wide and json show all.
const shownSlices = 10

func (out *output) showLongjob(ctx context.Context, run longjob.Run, ended []view.EndedSlice) error {
	v := view.NewLongJob(ctx, run)
	v.Timeline = ended
	switch out.flags.output {
	case outJSON:
		return out.printJSON(v)
	case outName:
		return out.printText(run.UUID + "\n")
	}
	l := &listing{columns: []column{{title: "WHAT"}, {whole: true}}}
	now := time.Now()
	row := func(what, value string) {
		if value != "" {
			l.add(what, nil, what, value)
		}
	}
	// Arguments and state may be large and are cut; messages and errors are not.
	data := func(what, value string) {
		if out.flags.output != outWide {
			value = wire.Printable(value, maxCell)
		}
		row(what, value)
	}
	row("uuid", run.UUID)
	row("class", run.Class)
	data("args", string(v.Args))
	row("status", string(run.Status))
	if paused := view.Since(run.Paused, now); !run.Paused.IsZero() {
		if run.Status == longjob.StatusRunning {
			paused += ", before the next unit"
		}
		row("paused", paused)
	}
	row("queue", run.Queue)
	row("tenant", run.Tenant)
	if run.Place > 0 {
		row("turn", fmt.Sprintf("number %d in the line of its tenant", run.Place))
	}
	row("slices", fmt.Sprintf("%d, next or current: %d", run.Slices, run.Slice))
	row("units", fmt.Sprintf("%d in %s of work", run.Units, run.Ran.Round(time.Millisecond)))
	for _, s := range v.Steps {
		text := fmt.Sprint(s.Done)
		if s.Total > 0 {
			text += fmt.Sprintf(" of %d", s.Total)
		}
		if rate := s.PerSecond(); rate > 0 {
			text += ", " + view.Rate(rate)
		}
		if left, ok := s.Left(); ok && !s.Finished && !run.Status.Over() {
			text += ", " + view.Left(left) + " of work left"
		}
		row("step "+s.Name, text)
	}
	if out.flags.output != outWide {
		ended = ended[max(0, len(ended)-shownSlices):]
	}
	for _, e := range ended {
		row("slice", fmt.Sprintf("%s for %s, %s, %s by %s", e.Started.Local().Format(time.DateTime), view.Age(time.Duration(e.MS)*time.Millisecond),
			plural(int(e.Units), "unit"), e.Outcome, wire.Printable(e.Proc, maxCell)))
	}
	row("enqueued", view.Since(run.Created, now))
	row("begun", view.Since(run.Begun, now))
	row("last seen", view.Since(run.Seen, now))
	row("ended", view.Since(run.Ended, now))
	if run.Deaths > 0 {
		row("deaths", fmt.Sprint(run.Deaths))
	}
	if run.Failures > 0 {
		row("failures", fmt.Sprint(run.Failures))
	}
	if run.Rerun {
		row("rerun", "one more run follows")
	}
	row("message", run.Message)
	row("error", run.Error)
	row("warning", run.Warning)
	for _, key := range slices.Sorted(maps.Keys(run.State)) {
		data("state "+key, string(run.State[key]))
	}
	return out.print(l)
}
