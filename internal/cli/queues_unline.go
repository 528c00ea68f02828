package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
)

func (a *cli) unlineQueuesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unline QUEUE…", Annotations: edits, Short: "put jobs in lines back to the head of their queue",
		Long: `Put jobs that wait for a lock or the turn of their tenant back to the head of
their queue, in the order of each line. Only resqued finds jobs in lines:
before other programs take over a queue, stop its daemons and run this.
Suspects, which wait outside the queue to run alone, stay; "queues move" moves
them.`,
		Example:           "  " + a.name + " queues unline mail",
		Args:              a.namesQueue,
		ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				views, err := a.queueSizes(ctx, c, s, args)
				for i, v := range views {
					if err == nil {
						v.Jobs, err = s.Unline(ctx, v.Queue)
					}
					if err != nil {
						_ = a.tellRemoved(views[:i], "unlined")
						return err
					}
					a.acts = append(a.acts, act(store.EventMoved, "queue "+v.Queue, fmt.Sprintf("%s out of lines", plural(int(v.Jobs), "job")), int(v.Jobs)))
				}
				if err != nil {
					return err
				}
				return a.tellRemoved(views, "unlined")
			})
		},
	}
}
