package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
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

func (a *cli) tickRecurringCommand() *cobra.Command {
	var r longjob.Recurring
	var queues runQueues
	var subjects bool
	return a.command(verb{
		use: "tick CLASS", kind: adds, short: "enqueue the runs of a recurring long job that are due now",
		long: `Enqueue the due runs of a class, spread evenly over the interval, as the ticks
of a recurring job in Go do. It is for a program that keeps its own list of
subjects: let a schedule run it every few minutes. With --subjects they come on
standard input, one JSON value each: the list of arguments of a run, one
argument that is not a list, or {"args": …, "interval_s": 3600, "tenant": "…"}.`,
		example: "  echo '\"north\" \"south\"' | " + a.name + " longjobs recurring tick Invoices \\\n    --interval 24h --subjects",
		args:    exactly(1, "the class"),
		flags: func(f *flagSet) {
			f.DurationVar(&r.Interval, "interval", 24*time.Hour, "time between runs of a subject")
			f.DurationVar(&r.Every, "every", 0, "time between ticks (default: 5m, or a tenth of the interval if less)")
			f.IntVar(&r.Backlog, "backlog", 0, "most runs that wait or run (default: 100)")
			queues.add(f)
			f.BoolVar(&subjects, "subjects", false, "read subjects from standard input (default: one without arguments)")
		},
		run: func(ctx context.Context, s *session, args []string) error {
			if subjects {
				list, err := readSubjects(io.LimitReader(s.a.stdin, maxInput+1))
				if err != nil {
					return err
				}
				r.Each = func(context.Context) ([]longjob.Subject, error) { return list, nil }
			}
			client := s.longjobs(context.Background(), s.a.program().Classes(s.loaded.Config))
			err := client.Tick(ctx, args[0], r, queues.options()...)
			if errors.Is(err, longjob.ErrNoQueue) {
				return noQueueOf(args[0])
			}
			return err
		},
	})
}

func readSubjects(from io.Reader) (list []longjob.Subject, err error) {
	d := json.NewDecoder(from)
	for {
		var raw json.RawMessage
		switch err := d.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, usage("", "subject %d is not JSON: %s", len(list)+1, err)
		}
		var s longjob.Subject
		if raw = bytes.TrimSpace(raw); raw[0] == '{' {
			var v struct {
				Args      json.RawMessage `json:"args"`
				IntervalS float64         `json:"interval_s"`
				Tenant    string          `json:"tenant"`
			}
			if err := json.Unmarshal(raw, &v); err != nil || len(v.Args) == 0 || v.IntervalS < 0 {
				return nil, usage("", "subject %d: use {\"args\": …, \"interval_s\": 3600, \"tenant\": \"…\"}", len(list)+1)
			}
			raw, s = v.Args, longjob.Subject{Interval: time.Duration(v.IntervalS * float64(time.Second)), Tenant: v.Tenant}
		}
		args := resqued.Args{raw}
		if raw[0] == '[' {
			if err := json.Unmarshal(raw, &args); err != nil {
				return nil, usage("", "subject %d: %s", len(list)+1, err)
			}
		}
		s.Args = args
		list = append(list, s)
	}
}
