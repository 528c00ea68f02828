package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/view"
)

func (a *cli) tenantsCommand() *cobra.Command {
	var limit int
	return a.command(verb{
		use: "tenants QUEUE…", kind: reads, short: "list the tenants of fair queues",
		long: `List the tenants of fair queues with waiting jobs, the next one first, and how
many jobs each has. "(back)" are jobs of all tenants that came back without
having run: they are next. Missing are jobs that no worker process has moved to
a line yet, which takes a moment, and jobs that wait for a lock, see "locks
waiting".`,
		args: a.someQueues(), names: queueNames,
		flags: func(f *flagSet) { f.limit(&limit, lockLimit, 1, "most tenants of a queue") },
		run: func(ctx context.Context, s *session, queues []string) error {
			l := newListing("QUEUE, TENANT, >JOBS")
			return s.ofQueues(l, queues, "tenant", "no jobs wait for the turn of a tenant", func(queue string) (bool, error) {
				tenants, cut, err := view.Tenants(ctx, s.Store, queue, limit)
				for _, v := range tenants {
					name := v.Tenant
					switch {
					case v.Back:
						name = "(back)"
					case name == "":
						name = "(none)"
					}
					l.add(name, v, v.Queue, name, strconv.FormatInt(v.Jobs, 10))
				}
				return cut, err
			})
		},
	})
}

// ofQueues prints what add adds to a list for each queue, or else a note. add returns whether the
// queue has more of what is listed.
func (out *output) ofQueues(l *listing, queues []string, what, nothing string, add func(queue string) (cut bool, err error)) error {
	for _, queue := range queues {
		cut, err := add(queue)
		if err != nil {
			return err
		}
		l.partial = l.partial || cut
	}
	if l.partial {
		out.note("only %s are shown; there are more, see --limit", plural(len(l.rows), what))
	}
	return out.printOr(l, "%s", nothing)
}
