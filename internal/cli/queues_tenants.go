package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

func (a *cli) tenantsCommand() *cobra.Command {
	limit := lockLimit
	c := &cobra.Command{
		Use: "tenants QUEUE…", Annotations: reads, Short: "list the tenants of fair queues",
		Long: `List the tenants of fair queues with waiting jobs, the next one first, and how
many jobs each has. "(back)" are jobs of all tenants that came back without
having run: they are next. Missing are jobs that no worker process has moved to
a line yet, which takes a moment, and jobs that wait for a lock, see "locks
waiting".`,
		Args: a.namesQueue, ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, queues []string) error {
			if limit < 1 {
				return usage("", "--limit %d: use 1 or more", limit)
			}
			return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.listTenants(ctx, s, queues, limit) })
		},
	}
	c.Flags().IntVar(&limit, "limit", lockLimit, "most tenants of a queue")
	return c
}

func (a *cli) listTenants(ctx context.Context, s *store.Store, queues []string, limit int) error {
	l := &listing{columns: []column{{title: "QUEUE"}, {title: "TENANT"}, {title: "JOBS", right: true}}}
	shown := 0
	for _, queue := range queues {
		tenants, cut, err := view.Tenants(ctx, s, queue, limit)
		if err != nil {
			return err
		}
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
		shown, l.partial = shown+len(tenants), l.partial || cut
	}
	if l.partial {
		a.note("only %s are shown; there are more, see --limit", plural(shown, "tenant"))
	}
	if shown == 0 && a.forPeople() {
		a.note("no jobs wait for the turn of a tenant")
	}
	return a.print(l)
}
