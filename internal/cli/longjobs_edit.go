package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/longjob"
)

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
