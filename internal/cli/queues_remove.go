package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

type removedView struct {
	Queue  string `json:"queue"`
	Jobs   int64  `json:"jobs"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// removeQueuesCommand makes "queues purge", which keeps the queue, and "queues rm".
func (a *cli) removeQueuesCommand(keep bool) *cobra.Command {
	verb, short := "rm", "remove queues with all their waiting jobs"
	if keep {
		verb, short = "purge", "remove all waiting jobs of queues"
	}
	var yes, dryRun bool
	c := &cobra.Command{
		Use: verb + " QUEUE…", Annotations: edits, Short: short,
		Long: strings.ToUpper(short[:1]) + short[1:] + `, and the records of their locks.
Running jobs are not touched. On a terminal it asks first; elsewhere it needs
--yes.`,
		Args:              a.namesQueue,
		ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, args []string) error {
			var views []*removedView
			err := a.withStore(c, func(ctx context.Context, s *store.Store) (err error) {
				views, err = a.queueSizes(ctx, c, s, args)
				return err
			})
			if err != nil {
				return err
			}
			if dryRun || len(views) == 0 {
				return a.tellRemoved(views, "would "+verb)
			}
			if !yes {
				if err := a.confirm(removal(verb, views)); err != nil {
					return err
				}
			}
			return a.withClient(c, func(ctx context.Context, jobs *client.Client, _ config.Config) error {
				remove, done := jobs.RemoveQueue, "removed"
				if keep {
					remove, done = jobs.PurgeQueue, "purged"
				}
				for i, v := range views {
					if v.Jobs, err = remove(ctx, v.Queue); err != nil {
						_ = a.tellRemoved(views[:i], done)
						return err
					}
					kind := store.EventRemoved
					if keep {
						kind = store.EventPurged
					}
					a.acts = append(a.acts, act(kind, "queue "+v.Queue, "with "+plural(int(v.Jobs), "job"), int(v.Jobs)))
				}
				return a.tellRemoved(views, done)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would change")
	return c
}

func (a *cli) queueSizes(ctx context.Context, c *cobra.Command, s *store.Store, names []string) ([]*removedView, error) {
	list, err := s.QueueList(ctx)
	if err != nil {
		return nil, err
	}
	if list, err = view.FindQueues(list, names); err != nil {
		return nil, a.noQueue(c, err)
	}
	var views []*removedView
	seen := map[string]bool{}
	for _, q := range list {
		if q.Err != nil {
			return nil, fmt.Errorf("queue %q: %w", q.Name, q.Err)
		}
		if !seen[q.Name] {
			seen[q.Name] = true
			views = append(views, &removedView{Queue: q.Name, Jobs: q.Size + q.Suspects})
		}
	}
	return views, nil
}

// removal says what would be done, as a question.
func removal(verb string, views []*removedView) string {
	if verb == "rm" {
		verb = "remove"
	}
	parts := make([]string, len(views))
	for i, v := range views {
		parts[i] = fmt.Sprintf("%s with %s", wire.Printable(v.Queue, 100), plural(int(v.Jobs), "job"))
	}
	return verb + " " + strings.Join(parts, ", ")
}

func (a *cli) tellRemoved(views []*removedView, what string) error {
	l := &listing{}
	var text strings.Builder
	for _, v := range views {
		v.DryRun = strings.HasPrefix(what, "would")
		l.names = append(l.names, v.Queue)
		l.items = append(l.items, v)
		fmt.Fprintf(&text, "%s %s with %s\n", strings.Replace(what, "would rm", "would remove", 1),
			wire.Printable(v.Queue, 0), plural(int(v.Jobs), "job"))
	}
	switch {
	case !a.forPeople():
		return a.print(l)
	case a.flags.quiet:
		return nil
	}
	return a.printText(text.String())
}
