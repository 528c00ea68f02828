package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

func (a *cli) recurringCommand() *cobra.Command {
	return a.command(verb{
		use: "recurring", kind: shows, short: "list, pause or forget recurring long jobs", args: none,
		long: `List recurring long jobs: how many subjects they have, how many runs are active
and may be (BACKLOG), how many due subjects the last tick did not start
(WAITING), and when the next one is due.`,
		run: listRecurring,
	},
		a.tickRecurringCommand(),
		a.editRecurringCommand("pause", "paused", "start no more runs of recurring long jobs, for now",
			func(ctx context.Context, long *longstore.Store, class string) error {
				return long.PauseRecur(ctx, class, true)
			}),
		a.editRecurringCommand("resume", "resumed", "start runs of recurring long jobs again",
			func(ctx context.Context, long *longstore.Store, class string) error {
				return long.PauseRecur(ctx, class, false)
			}),
		a.editRecurringCommand("rm", "removed", "forget recurring long jobs that no daemon has any more",
			func(ctx context.Context, long *longstore.Store, class string) error {
				return long.RemoveRecur(ctx, class)
			}),
	)
}

func listRecurring(ctx context.Context, s *session, _ []string) error {
	all, err := view.RecurringJobs(ctx, longstore.New(s.Redis()))
	if err != nil {
		return err
	}
	l := newListing("CLASS, >EVERY, >SUBJECTS, >ACTIVE, >BACKLOG, >STARTED, >WAITING, >LAST TICK, >NEXT DUE, STATE")
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
	return s.printOr(l, "no recurring long jobs")
}

func (a *cli) editRecurringCommand(name, done, short string, edit func(ctx context.Context, long *longstore.Store, class string) error) *cobra.Command {
	return a.command(verb{
		use: name + " CLASS…", kind: edits, short: short, example: "longjobs recurring " + name + " Invoices", args: a.some("which?", "longjobs recurring"),
		run: func(ctx context.Context, s *session, args []string) error {
			long := longstore.New(s.Redis())
			all, err := long.Recurring(ctx)
			if err != nil {
				return err
			}
			known := make([]string, len(all))
			for i, r := range all {
				known[i] = r.Class
			}
			for _, class := range args {
				if !slices.Contains(known, class) {
					return notFound("recurring long job", class, known, s.again()+" longjobs recurring")
				}
			}
			l := &listing{}
			for _, class := range args {
				if err := edit(ctx, long, class); err != nil {
					return err
				}
				s.did(store.EventKind(done), "recurring long job "+class, "", 1)
				l.did(class, map[string]string{"class": class, "status": done}, "%s %s", done, class)
			}
			return s.tell(l)
		},
	})
}
