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

// editLongjobsCommand makes "longjobs requeue" and "longjobs cancel".
func (a *cli) editLongjobsCommand(verb string) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " UUID…", Short: "have long jobs go on that have failed or were cancelled",
		Long: `Have runs go on that have failed or were cancelled, from where they were. One whose last
slice is still running has to wait for its end.`,
		Example: "  " + a.name + " longjobs " + verb + " 6f1c",
	}
	done := "requeued"
	if verb == "cancel" {
		done = "cancelled"
		c.Short = "end long jobs for good"
		c.Long = `End runs that wait or run, for good. What a slice that runs has not saved yet is not saved
any more; it ends within seconds, if its code listens.`
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
				kind := store.EventRequeued
				if verb == "cancel" {
					kind = store.EventCanceled
				}
				a.did(kind, "long job "+run.UUID, run.Class, 1)
			}
			switch {
			case a.flags.output == outJSON:
				return a.printJSON(map[string][]string{done: changed})
			case a.flags.output == outName:
				return a.printText(strings.Join(changed, "\n") + "\n")
			case a.flags.quiet:
				return nil
			}
			return a.printText(done + " " + plural(len(changed), "long job") + "\n")
		})
	}
	return c
}

func (a *cli) editLongjob(ctx context.Context, client *longjob.Client, verb string, run longjob.Run) error {
	var err error
	if verb == "cancel" {
		if err = client.Cancel(ctx, run.UUID); errors.Is(err, longjob.ErrEnding) {
			a.note("%s is cancelled; the code of its last slice runs still", run.UUID)
			err = nil
		}
	} else {
		err = client.Requeue(ctx, run.UUID)
	}
	switch {
	case errors.Is(err, longjob.ErrNotFound):
		return notFound("long job", run.UUID, nil, a.again()+" longjobs")
	case errors.Is(err, longjob.ErrOver), errors.Is(err, longjob.ErrNotOver), errors.Is(err, longjob.ErrEnding), errors.Is(err, longjob.ErrNewer):
		return &problem{exit: exitFailed, code: "state", lines: []string{fmt.Sprintf("cannot %s %s: it is %s", verb, run.UUID, run.Status), err.Error()}, cause: err}
	}
	return err
}
