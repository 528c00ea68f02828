package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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
	name, do, done, event, short := "rm", "remove", "removed", store.EventRemoved, "remove queues with all their waiting jobs"
	if keep {
		name, do, done, event, short = "purge", "purge", "purged", store.EventPurged, "remove all waiting jobs of queues"
	}
	var o consent
	return a.command(verb{
		use: name + " QUEUE…", kind: edits, short: short,
		long: strings.ToUpper(short[:1]) + short[1:] + `, and the records of their locks.
Running jobs are not touched. On a terminal it asks first; elsewhere it needs
--yes.`,
		args: a.someQueues(), names: queueNames, flags: o.add,
		run: func(ctx context.Context, s *session, args []string) error {
			views, err := queueSizes(ctx, s, args)
			if err != nil {
				return err
			}
			if o.dryRun {
				return removeEach(s, views, "would "+do, func(v *removedView) error {
					v.DryRun = true
					return nil
				})
			}
			if err := s.a.confirm(o.yes, do+" "+queuesWithJobs(views)); err != nil {
				return err
			}
			remove := s.jobs.RemoveQueue
			if keep {
				remove = s.jobs.PurgeQueue
			}
			return removeEach(s, views, done, func(v *removedView) (err error) {
				if v.Jobs, err = remove(ctx, v.Queue); err == nil {
					s.a.act(event, "queue "+v.Queue, "with "+plural(int(v.Jobs), "job"), int(v.Jobs))
				}
				return err
			})
		},
	})
}

func (a *cli) unlineQueuesCommand() *cobra.Command {
	return a.command(verb{
		use: "unline QUEUE…", kind: edits, short: "put jobs in lines back to the head of their queue",
		long: `Put jobs that wait for a lock or the turn of their tenant back to the head of
their queue, in the order of each line. Only resqued finds jobs in lines:
before other programs take over a queue, stop its daemons and run this.
Suspects, which wait outside the queue to run alone, stay; "queues move" moves
them.`,
		example: "queues unline mail",
		args:    a.someQueues(), names: queueNames,
		run: func(ctx context.Context, s *session, args []string) error {
			views, err := queueSizes(ctx, s, args)
			if err != nil {
				return err
			}
			return removeEach(s, views, "unlined", func(v *removedView) (err error) {
				if v.Jobs, err = s.Unline(ctx, v.Queue); err == nil {
					s.a.act(store.EventMoved, "queue "+v.Queue, plural(int(v.Jobs), "job")+" out of lines", int(v.Jobs))
				}
				return err
			})
		},
	})
}

// removeEach removes the jobs of queues, and tells of those that are done, also after an error.
func removeEach(s *session, views []*removedView, done string, remove func(v *removedView) error) error {
	l := &listing{}
	for _, v := range views {
		if err := remove(v); err != nil {
			_ = s.tell(l)
			return err
		}
		l.did(v.Queue, v, "%s %s with %s", done, wire.Printable(v.Queue, 0), plural(int(v.Jobs), "job"))
	}
	return s.tell(l)
}

func queueSizes(ctx context.Context, s *session, names []string) ([]*removedView, error) {
	list, err := s.QueueList(ctx)
	if err != nil {
		return nil, err
	}
	if list, err = view.FindQueues(list, names); err != nil {
		return nil, s.lookup(err, "queues")
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

func queuesWithJobs(views []*removedView) string {
	parts := make([]string, len(views))
	for i, v := range views {
		parts[i] = fmt.Sprintf("%s with %s", wire.Printable(v.Queue, 100), plural(int(v.Jobs), "job"))
	}
	return strings.Join(parts, ", ")
}
