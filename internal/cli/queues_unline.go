package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
)

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
					s.a.acts = append(s.a.acts, act(store.EventMoved, "queue "+v.Queue, plural(int(v.Jobs), "job")+" out of lines", int(v.Jobs)))
				}
				return err
			})
		},
	})
}
