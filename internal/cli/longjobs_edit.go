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
	done, short, long string
	event             store.EventKind
	do                func(ctx context.Context, client *longjob.Client, uuid string) error
	// still is the note if it was done although a slice is still running; empty = it must not be.
	still string
}

func longjobVerbs() map[string]longjobVerb {
	return map[string]longjobVerb{
		"requeue": {
			done: "requeued", event: store.EventRequeued, short: "continue failed or cancelled long jobs",
			long: `Continue failed or cancelled runs from where they were. A run is refused while
its last slice still runs.`,
			do: func(ctx context.Context, client *longjob.Client, uuid string) error { return client.Requeue(ctx, uuid) },
		},
		"cancel": {
			done: "cancelled", event: store.EventCanceled, short: "end long jobs for good", still: "the code of its last slice runs still",
			long: `End waiting or running runs for good. A running slice saves nothing more; it
ends within seconds if its code listens.`,
			do: func(ctx context.Context, client *longjob.Client, uuid string) error { return client.Cancel(ctx, uuid) },
		},
		"pause": {
			done: "paused", event: store.EventPaused, short: "pause long jobs", still: "its slice ends before the next unit",
			long: `Pause waiting or running runs until "longjobs resume". They keep their state
for any time; a running slice ends before its next unit. "longjobs start" still
finds a paused run, and you can cancel it.`,
			do: func(ctx context.Context, client *longjob.Client, uuid string) error { return client.Pause(ctx, uuid) },
		},
		"resume": {
			done: "resumed", event: store.EventResumed, short: "continue paused long jobs",
			long: "Continue paused runs from where they were.",
			do:   func(ctx context.Context, client *longjob.Client, uuid string) error { return client.Resume(ctx, uuid) },
		},
	}
}

// editLongjobsCommand makes a verb, such as "longjobs cancel".
func (a *cli) editLongjobsCommand(verb string) *cobra.Command {
	v := longjobVerbs()[verb]
	c := &cobra.Command{
		Use: verb + " UUID…", Annotations: edits, Short: v.short, Long: v.long, Example: "  " + a.name + " longjobs " + verb + " 6f1c",
	}
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("See: "+a.again()+" longjobs", "which?")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.withLongjobs(c, func(ctx context.Context, client *longjob.Client) error {
			var changed []string
			for _, name := range args {
				run, err := a.findLongjob(ctx, client, name)
				if err != nil {
					return err
				}
				if err := a.editLongjob(ctx, client, verb, run); err != nil {
					return err
				}
				changed = append(changed, run.UUID)
				a.did(v.event, "long job "+run.UUID, run.Class, 1)
			}
			switch {
			case a.flags.output == outJSON:
				return a.printJSON(map[string][]string{v.done: changed})
			case a.flags.output == outName:
				return a.printText(strings.Join(changed, "\n") + "\n")
			case a.flags.quiet:
				return nil
			}
			return a.printText(v.done + " " + plural(len(changed), "long job") + "\n")
		})
	}
	return c
}

func (a *cli) editLongjob(ctx context.Context, client *longjob.Client, verb string, run longjob.Run) error {
	v := longjobVerbs()[verb]
	err := v.do(ctx, client, run.UUID)
	if errors.Is(err, longjob.ErrEnding) && v.still != "" {
		a.note("%s is %s; %s", run.UUID, v.done, v.still)
		err = nil
	}
	switch {
	case errors.Is(err, longjob.ErrNotFound):
		return notFound("long job", run.UUID, nil, a.again()+" longjobs")
	case errors.Is(err, longjob.ErrOver), errors.Is(err, longjob.ErrNotOver), errors.Is(err, longjob.ErrEnding), errors.Is(err, longjob.ErrNewer),
		errors.Is(err, longjob.ErrNotPaused):
		return &problem{exit: exitFailed, code: "state", lines: []string{fmt.Sprintf("cannot %s %s: it is %s", verb, run.UUID, run.Status), err.Error()}, cause: err}
	}
	return err
}
