package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const parkedLimit = 1000

func (a *cli) parkedCommand() *cobra.Command {
	limit := parkedLimit
	ls := func(c *cobra.Command, _ []string) error {
		if limit < 1 {
			return usage("", "--limit %d: use 1 or more", limit)
		}
		return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.listParked(ctx, s, limit) })
	}
	parent := &cobra.Command{
		Use: "parked", Annotations: shows, Short: "list, put back or remove jobs whose end could not be written", RunE: ls,
		Long: `List what could not be written where it belongs. STATE is

  waits  a key that holds something else blocks the job's end, see REASON. When
         it is moved or removed, the job takes its place within half a minute
  kept   the payload of a failed job, too large for its failure record, which
         refers to it. "failed retry" runs it again`,
		Example: "  " + a.name + " parked\n  " + a.name + " parked payload ID > payload.json\n  " + a.name + " parked retry ID",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	}
	list := &cobra.Command{
		Use: "ls", Annotations: shows, Short: "list what is parked (default)", Args: exactly(0, "no arguments"), RunE: ls,
	}
	for _, c := range []*cobra.Command{parent, list} {
		c.Flags().IntVar(&limit, "limit", parkedLimit, "most parked jobs, oldest first")
		_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	}
	payload := &cobra.Command{
		Use: "payload ID", Annotations: reads, Short: "write the payload to standard output, as it was pushed", Args: exactly(1, "one id"),
		ValidArgsFunction: a.live(parkedNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				payload, err := s.ParkedBytes(ctx, args[0])
				if err != nil {
					return err
				}
				if payload == nil {
					return a.noParked(ctx, s, args[0])
				}
				_, err = a.stdout.Write(payload)
				return err
			})
		},
	}
	retry := &cobra.Command{
		Use: "retry ID…", Annotations: edits, Short: "put jobs where they belong now",
		Long: `Put jobs where they belong now: those that wait in their place, the payload of
a failed job at the tail of its queue. Its failure record stays.`,
		Args: someParked, ValidArgsFunction: a.live(parkedNames),
		RunE: func(c *cobra.Command, args []string) error {
			return a.eachParked(c, args, "put back", func(ctx context.Context, s *store.Store, id string) error { return s.Replace(ctx, id) })
		},
	}
	yes := false
	remove := &cobra.Command{
		Use: "rm ID…", Annotations: edits, Short: "remove parked jobs and their payloads for good",
		Long: "Remove parked jobs and their payloads for good.\nOn a terminal it asks first; elsewhere it needs --yes.",
		Args: someParked, ValidArgsFunction: a.live(parkedNames),
		RunE: func(c *cobra.Command, args []string) error {
			if !yes {
				if err := a.confirm("remove " + plural(len(args), "parked job")); err != nil {
					return err
				}
			}
			return a.eachParked(c, args, "removed", func(ctx context.Context, s *store.Store, id string) error {
				_, err := s.DropParked(ctx, id)
				return err
			})
		},
	}
	remove.Flags().BoolVar(&yes, "yes", false, "do not ask")
	parent.AddCommand(list, payload, retry, remove)
	return parent
}

func someParked(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("See: "+c.Parent().CommandPath(), "which parked job?")
	}
	return nil
}

func (a *cli) listParked(ctx context.Context, s *store.Store, limit int) error {
	views, total, err := view.ParkedJobs(ctx, s, limit)
	if err != nil {
		return err
	}
	l := &listing{partial: int64(len(views)) < total, columns: []column{
		{title: "ID"},
		{title: "STATE"},
		{title: "QUEUE"},
		{title: "SIZE", right: true},
		{title: "AGE", right: true},
		{title: "REASON"},
		{title: "KEY", wide: true},
	}}
	now := time.Now()
	for _, v := range views {
		l.add(v.ID, v, v.ID, v.State, v.Queue, view.Size(v.Bytes), view.Since(v.ParkedAt, now), v.Reason, v.Key)
	}
	if err := a.print(l); err != nil {
		return err
	}
	if !a.forPeople() {
		return nil
	}
	if l.partial {
		a.note("only %d of %d are shown; see --limit", len(views), total)
	}
	if total == 0 {
		a.note("nothing is parked")
	}
	return nil
}

func (a *cli) eachParked(c *cobra.Command, ids []string, done string, do func(ctx context.Context, s *store.Store, id string) error) error {
	return a.withStore(c, func(ctx context.Context, s *store.Store) error {
		known, err := parkedNames(ctx, s)
		if err != nil {
			return err
		}
		for _, id := range ids {
			payload, err := s.ParkedBytes(ctx, id)
			switch {
			case err != nil:
				return err
			case payload == nil:
				return notFound("parked job", id, known, a.again()+" parked")
			}
		}
		var text strings.Builder
		for _, id := range ids {
			if err := do(ctx, s, id); err != nil {
				_ = a.printText(text.String())
				return fmt.Errorf("parked job %s: %w", wire.Printable(id, 300), err)
			}
			kind := store.EventRemoved
			if done != "removed" {
				kind = store.EventRetried
			}
			a.did(kind, "parked job "+id, done, 1)
			fmt.Fprintf(&text, "%s %s\n", done, wire.Printable(id, 300))
		}
		return a.printText(text.String())
	})
}

func (a *cli) noParked(ctx context.Context, s *store.Store, id string) error {
	known, err := parkedNames(ctx, s)
	if err != nil {
		return err
	}
	return notFound("parked job", id, known, a.again()+" parked")
}

func parkedNames(ctx context.Context, s *store.Store) ([]string, error) {
	jobs, _, err := s.Parked(ctx, parkedLimit)
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.ID
	}
	return names, err
}

// noteParked notes below another list that there are parked jobs.
func (a *cli) noteParked(ctx context.Context, s *store.Store) {
	if !a.forPeople() {
		return
	}
	if n, err := s.ParkedCount(ctx); err == nil && n > 0 {
		verb := "are"
		if n == 1 {
			verb = "is"
		}
		a.note("%s %s parked: what could not be written where it belongs; see: %s parked", plural(int(n), "job"), verb, a.again())
	}
}
