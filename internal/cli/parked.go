package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const parkedLimit = 1000

func (a *cli) parkedCommand() *cobra.Command {
	var limit int
	some := a.some("which parked job?", "parked")
	payload := a.command(verb{
		use: "payload ID", kind: reads, short: "write the payload to standard output, as it was pushed", args: exactly(1, "one id"), names: parkedNames,
		run: func(ctx context.Context, s *session, args []string) error {
			payload, err := parkedPayload(ctx, s, args[0])
			if err == nil {
				_, err = s.stdout.Write(payload)
			}
			return err
		},
	})
	retry := a.command(verb{
		use: "retry ID…", kind: edits, short: "put jobs where they belong now", args: some, names: parkedNames,
		long: `Put jobs where they belong now: those that wait in their place, the payload of
a failed job at the tail of its queue. Its failure record stays.`,
		run: func(ctx context.Context, s *session, args []string) error {
			return eachParked(ctx, s, args, "put back", store.EventRetried, s.Replace)
		},
	})
	yes := false
	remove := a.command(verb{
		use: "rm ID…", kind: edits, short: "remove parked jobs and their payloads for good", args: some, names: parkedNames,
		long:  "Remove parked jobs and their payloads for good.\nOn a terminal it asks first; elsewhere it needs --yes.",
		flags: func(f *flagSet) { f.BoolVar(&yes, "yes", false, "do not ask") },
		run: func(ctx context.Context, s *session, args []string) error {
			if err := s.a.confirm(yes, "remove "+plural(len(args), "parked job")); err != nil {
				return err
			}
			return eachParked(ctx, s, args, "removed", store.EventRemoved, func(ctx context.Context, id string) error {
				_, err := s.DropParked(ctx, id)
				return err
			})
		},
	})
	return a.lists(verb{
		use: "parked", kind: shows, short: "list, put back or remove jobs whose end could not be written",
		long: `List what could not be written where it belongs. STATE is

  waits  a key that holds something else blocks the job's end, see REASON. When
         it is moved or removed, the job takes its place within half a minute
  kept   the payload of a failed job, too large for its failure record, which
         refers to it. "failed retry" runs it again`,
		example: "parked\nparked payload ID > payload.json\nparked retry ID",
		flags:   func(f *flagSet) { f.limit(&limit, parkedLimit, 1, "most parked jobs, oldest first") },
		run:     func(ctx context.Context, s *session, _ []string) error { return listParked(ctx, s, limit) },
	}, "list what is parked (default)", payload, retry, remove)
}

func listParked(ctx context.Context, s *session, limit int) error {
	views, total, err := view.ParkedJobs(ctx, s.Store, limit)
	if err != nil {
		return err
	}
	l := newListing("ID, STATE, QUEUE, >SIZE, >AGE, REASON, +KEY")
	l.partial = int64(len(views)) < total
	now := time.Now()
	for _, v := range views {
		l.add(v.ID, v, v.ID, v.State, v.Queue, view.Size(v.Bytes), view.Since(v.ParkedAt, now), v.Reason, v.Key)
	}
	if err := s.print(l); err != nil {
		return err
	}
	switch {
	case !s.forPeople():
	case l.partial:
		s.note("only %d of %d are shown; see --limit", len(views), total)
	case total == 0:
		s.note("nothing is parked")
	}
	return nil
}

// eachParked does something to parked jobs, once it knows that there are all of them.
func eachParked(ctx context.Context, s *session, ids []string, done string, kind store.EventKind, do func(ctx context.Context, id string) error) error {
	for _, id := range ids {
		if _, err := parkedPayload(ctx, s, id); err != nil {
			return err
		}
	}
	l := &listing{}
	for _, id := range ids {
		if err := do(ctx, id); err != nil {
			_ = s.printText(l.lines.String())
			return fmt.Errorf("parked job %s: %w", wire.Printable(id, 300), err)
		}
		s.did(kind, "parked job "+id, done, 1)
		l.did(id, nil, "%s %s", done, wire.Printable(id, 300))
	}
	return s.printText(l.lines.String())
}

// parkedPayload returns the payload of a parked job, which there must be.
func parkedPayload(ctx context.Context, s *session, id string) ([]byte, error) {
	payload, err := s.ParkedBytes(ctx, id)
	if err != nil || payload != nil {
		return payload, err
	}
	known, err := parkedNames(ctx, s.Store)
	if err != nil {
		return nil, err
	}
	return nil, notFound("parked job", id, known, s.again()+" parked")
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
func noteParked(ctx context.Context, s *session) {
	if !s.forPeople() {
		return
	}
	if n, err := s.ParkedCount(ctx); err == nil && n > 0 {
		verb := "are"
		if n == 1 {
			verb = "is"
		}
		s.note("%s %s parked: what could not be written where it belongs; see: %s parked", plural(int(n), "job"), verb, s.again())
	}
}
