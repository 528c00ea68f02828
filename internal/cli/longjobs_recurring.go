package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

func (a *cli) recurringCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "recurring", Annotations: shows, Short: "list, pause or forget recurring long jobs", Args: exactly(0, "no arguments"),
		Long: `List recurring long jobs: how many subjects they have, how many runs are active
and may be (BACKLOG), how many due subjects the last tick did not start
(WAITING), and when the next one is due.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.withStore(c, a.listRecurring) },
	}
	c.AddCommand(
		a.tickRecurringCommand(),
		a.editRecurringCommand("pause", "paused", "start no more runs of recurring long jobs, for now",
			func(ctx context.Context, s *store.Store, class string) error {
				return longstore.New(s.Redis()).PauseRecur(ctx, class, true)
			}),
		a.editRecurringCommand("resume", "resumed", "start runs of recurring long jobs again",
			func(ctx context.Context, s *store.Store, class string) error {
				return longstore.New(s.Redis()).PauseRecur(ctx, class, false)
			}),
		a.editRecurringCommand("rm", "removed", "forget recurring long jobs that no daemon has any more",
			func(ctx context.Context, s *store.Store, class string) error {
				return longstore.New(s.Redis()).RemoveRecur(ctx, class)
			}),
	)
	return c
}

func (a *cli) listRecurring(ctx context.Context, s *store.Store) error {
	all, err := view.RecurringJobs(ctx, longstore.New(s.Redis()))
	if err != nil {
		return err
	}
	l := &listing{columns: []column{
		{title: "CLASS"},
		{title: "EVERY", right: true},
		{title: "SUBJECTS", right: true},
		{title: "ACTIVE", right: true},
		{title: "BACKLOG", right: true},
		{title: "STARTED", right: true},
		{title: "WAITING", right: true},
		{title: "LAST TICK", right: true},
		{title: "NEXT DUE", right: true},
		{title: "STATE"},
	}}
	now := time.Now()
	for _, v := range all {
		state, next := "", ""
		switch {
		case v.Paused:
			state = "paused"
		case v.Error != "":
			state = v.Error
		case !v.Next.IsZero():
			next = view.Age(max(0, v.Next.Sub(now)))
		}
		l.add(v.Class, v, v.Class, view.Age(time.Duration(v.IntervalS*float64(time.Second))), fmt.Sprint(v.Subjects), fmt.Sprint(v.Active), fmt.Sprint(v.Backlog),
			fmt.Sprint(v.Started), fmt.Sprint(v.Waiting), view.Since(v.Last, now), next, state)
	}
	if len(all) == 0 && a.forPeople() {
		a.note("no recurring long jobs")
	}
	return a.print(l)
}

func (a *cli) editRecurringCommand(verb, done, short string, edit func(ctx context.Context, s *store.Store, class string) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " CLASS…", Annotations: edits, Short: short, Example: "  " + a.name + " longjobs recurring " + verb + " Invoices",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("See: "+a.again()+" longjobs recurring", "which?")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				all, err := longstore.New(s.Redis()).Recurring(ctx)
				if err != nil {
					return err
				}
				known := make([]string, len(all))
				for i, r := range all {
					known[i] = r.Class
				}
				for _, class := range args {
					if !slices.Contains(known, class) {
						return notFound("recurring long job", class, known, a.again()+" longjobs recurring")
					}
				}
				l := &listing{}
				var text strings.Builder
				for _, class := range args {
					if err := edit(ctx, s, class); err != nil {
						return err
					}
					a.did(store.EventKind(done), "recurring long job "+class, "", 1)
					l.names = append(l.names, class)
					l.items = append(l.items, map[string]string{"class": class, "status": done})
					text.WriteString(done + " " + class + "\n")
				}
				return a.tellSchedules(l, text.String())
			})
		},
	}
}
