package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

const longLimit = 100

func (a *cli) longjobsCommand() *cobra.Command {
	f := longjob.Filter{Limit: longLimit}
	var status string
	ls := func(c *cobra.Command, _ []string) error {
		f.Status = longjob.Status(status)
		switch f.Status {
		case "", longjob.StatusQueued, longjob.StatusRunning, longjob.StatusPaused, longjob.StatusCompleted, longjob.StatusFailed, longjob.StatusCancelled, longjob.StatusSuperseded:
		default:
			return usage("", "--status %q: use queued, running, paused, completed, failed, cancelled or superseded", status)
		}
		if f.Limit < 1 {
			return usage("", "--limit %d: use 1 or more", f.Limit)
		}
		return a.withLongjobs(c, func(ctx context.Context, client *longjob.Client) error {
			return a.listLongjobs(ctx, client, f)
		})
	}
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&f.Class, "class", "", "only this class")
		c.Flags().StringVar(&status, "status", "", "only queued, running, paused, completed, failed, cancelled or superseded")
		c.Flags().IntVar(&f.Limit, "limit", longLimit, "most runs")
		_ = c.RegisterFlagCompletionFunc("class", a.live(a.classNames))
		_ = c.RegisterFlagCompletionFunc("status", words("queued", "running", "paused", "completed", "failed", "cancelled", "superseded"))
		return c
	}
	parent := flags(&cobra.Command{
		Use: "longjobs", Annotations: shows, Short: "list, start, pause, requeue or cancel long jobs", RunE: ls,
		Long: `List runs of long jobs: first those that wait or run, with their progress and
the estimated time left in their last step, then those that have ended.`,
		Example: "  " + a.name + " longjobs\n  " + a.name + " longjobs --watch\n  " + a.name + " longjobs show 6f1c",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	})
	parent.AddCommand(flags(&cobra.Command{
		Use: "ls", Annotations: shows, Short: "list long jobs (default)", Args: exactly(0, "no arguments"), RunE: ls,
	}), a.showLongjobCommand(), a.startLongjobCommand(), a.recurringCommand(), a.editLongjobsCommand("pause"), a.editLongjobsCommand("resume"), a.editLongjobsCommand("requeue"), a.editLongjobsCommand("cancel"))
	return parent
}

func (a *cli) withLongjobs(c *cobra.Command, do func(ctx context.Context, client *longjob.Client) error) error {
	return a.withStore(c, func(ctx context.Context, s *store.Store) error {
		return do(ctx, longjob.ClientFrom(longstore.New(s.Redis()).InContext(ctx), a.handlers))
	})
}

func (a *cli) listLongjobs(ctx context.Context, client *longjob.Client, f longjob.Filter) error {
	runs, more, err := view.LongJobs(ctx, client, f)
	if err != nil {
		return err
	}
	l := &listing{partial: more, columns: []column{
		{title: "UUID"},
		{title: "CLASS"},
		{title: "STATUS", colour: statusColour},
		{title: "PROGRESS"},
		{title: "UNITS", right: true},
		{title: "SLICES", right: true},
		{title: "RATE", right: true},
		{title: "ETA", right: true},
		{title: "SEEN", right: true},
		{title: "MESSAGE"},
		{title: "QUEUE", wide: true},
		{title: "TENANT", wide: true},
		{title: "ARGS", wide: true},
	}}
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
	if a.forPeople() {
		switch {
		case len(runs) == 0 && (f.Class != "" || f.Status != ""):
			a.note("no such long jobs")
		case len(runs) == 0:
			a.note("no long jobs")
		case more:
			a.note("only %d are shown; see --limit", f.Limit)
		}
	}
	return a.print(l)
}

// findLongjob finds a run by its uuid or a prefix of it.
func (a *cli) findLongjob(ctx context.Context, client *longjob.Client, name string) (longjob.Run, error) {
	run, err := view.FindLongJob(ctx, client, name)
	return run, lookup(err, a.again()+" longjobs", nil)
}
