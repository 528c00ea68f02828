package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// failedLimit is how many of the newest failures are read.
	failedLimit = 1000
	// failedSearch is how many are read with a filter.
	failedSearch = 100_000
)

type failedOptions struct {
	filterFlags
	flat  bool
	limit int
}

func (a *cli) failedCommand() *cobra.Command {
	var o failedOptions
	show := a.command(verb{
		use: "show ID…", kind: shows, short: "show failures with their backtraces", args: a.some("which failure?", "failed --flat"), run: showFailed,
	})
	return a.lists(verb{
		use: "failed", kind: shows, short: "list, show, retry or remove failed jobs",
		long: `List failed jobs, grouped by kind, or show one with its payload and backtrace.
This covers the failed list and the per-queue lists of Resque's multi-queue
failure backend.

Failures are of one kind if class, exception, queue and message are the same.
In messages, numbers count as #, UUIDs and other ids as <id>, quoted texts as
"…". GROUP selects a kind: "failed retry --group ID". EXAMPLE (-o wide, -o json)
is the id of its newest failure, for "failed show".

An id is a digest of the record and its place, counted from the oldest. The
beginning of the digest is enough, but then all records are read.`,
		example: "failed --since 10:00\nfailed --flat --class 'Mail*' --arg 0.customer=42\nfailed show 0af6af819782@41",
		flags: func(f *flagSet) {
			f.BoolVar(&o.flat, "flat", false, "a line per failure, not per kind")
			f.limit(&o.limit, failedLimit, 1, "most failures to read, newest first; 100000 with a filter")
			o.add(f, filter.Failures)
		},
		list: func(ctx context.Context, s *session, _ []string) (*listing, error) {
			if o.filtered() && !s.cmd.Flags().Changed("limit") {
				o.limit = failedSearch
			}
			return listFailed(ctx, s, o)
		},
	}, "list failed jobs (default)", show, a.editFailedCommand(true), a.editFailedCommand(false))
}

func listFailed(ctx context.Context, s *session, o failedOptions) (*listing, error) {
	l, err := failures(ctx, s, o)
	if err != nil {
		return nil, err
	}
	if l.partial && s.flags.output != outJSON {
		s.note("only the newest %d failures were looked at; see --limit", o.limit)
	}
	switch {
	case len(l.rows) > 0 || s.flags.output == outJSON:
	case o.filtered():
		s.note("no failure fits")
	default:
		s.note("no failures")
	}
	noteParked(ctx, s)
	return l, nil
}

// failures returns the selected failures, one by one or in groups.
func failures(ctx context.Context, s *session, o failedOptions) (*listing, error) {
	q := view.FailureQuery{Limit: int64(o.limit)}
	if o.filtered() {
		m, err := o.matcher(ctx)
		if err != nil {
			return nil, err
		}
		q.Match = func(record []byte) bool {
			_, ok := m.Failure(record)
			return ok
		}
	}
	if o.flat {
		views, partial, err := view.Failures(ctx, s.Store, q)
		for i := range views {
			views[i].Store = s.listed
		}
		l := flatFailures(views)
		l.partial = partial
		return l, err
	}
	groups, err := view.GroupFailures(ctx, s.Store, q)
	if err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		g.Store = s.listed
	}
	l := groupFailures(groups.Groups)
	l.partial = groups.Partial || groups.Others > 0
	if groups.Others > 0 && s.flags.output != outJSON {
		s.note("and %s of further kinds, which are too many to tell apart; use a filter, or --flat", plural(groups.Others, "failure"))
	}
	return l, nil
}

func findFailed(ctx context.Context, s *session, ids []string) ([]view.Failure, error) {
	views, err := view.FindFailures(ctx, s.Store, ids)
	return views, s.lookup(err, "failed --flat")
}

func showFailed(ctx context.Context, s *session, ids []string) error {
	views, err := findFailed(ctx, s, ids)
	if err != nil {
		return err
	}
	return showEach(s.output, flatFailures(views), views, func(v view.Failure) string { return failureText(s.output, s.again(), v) })
}

func groupFailures(groups []*view.FailureGroup) *listing {
	l := newListing(">COUNT, GROUP, CLASS, ERROR, >LAST, MESSAGE, +>FIRST, +QUEUE, +EXAMPLE, +NEWEST MESSAGE")
	now := time.Now()
	for _, g := range groups {
		l.add(g.Class, g, strconv.Itoa(g.Count), g.ID, g.Class, g.Exception, sinceP(g.Last, now), g.Pattern, sinceP(g.First, now), g.Queue, g.Example, g.Error)
	}
	return l
}

func flatFailures(views []view.Failure) *listing {
	l := newListing("ID, CLASS, ERROR, MESSAGE, >AGE, QUEUE, +RETRIED, +ARGS, +WORKER")
	now := time.Now()
	for _, v := range views {
		l.add(v.Name(), v, v.Name(), v.Class, v.Exception, filter.Summary(v.Error), sinceP(v.FailedAt, now),
			v.Queue, v.RetriedAt, string(v.Args), v.Worker)
	}
	return l
}

// failureText is a failure in full. again is the start of a command.
func failureText(out *output, again string, v view.Failure) string {
	d := details{at: 11}
	d.line("id", v.ID)
	if v.List != "failed" {
		d.line("list", v.List)
	}
	d.line("class", v.Class)
	d.line("args", string(v.Args))
	d.line("queue", v.Queue)
	if v.FailedAt != nil {
		d.line("failed", v.FailedAt.Format(time.RFC3339)+" ("+view.Age(time.Since(*v.FailedAt))+" ago)")
	}
	if v.Attempts > 0 {
		d.line("attempts", strconv.Itoa(v.Attempts))
	}
	d.line("retried", v.RetriedAt)
	d.line("worker", v.Worker)
	if v.KeptAs != "" {
		d.line("size", strconv.FormatInt(v.KeptSize, 10)+" bytes, kept next to the record; see: "+again+" parked payload "+v.KeptAs)
	}
	d.line("payload", v.Payload)
	if v.Exception != "" {
		d.painted("exception", out.paint(red, wire.Printable(v.Exception, 0)))
	}
	name := "error"
	for text := range strings.SplitSeq(strings.TrimRight(v.Error, "\n"), "\n") {
		d.line(name, text)
		name = ""
	}
	name = "backtrace"
	for _, frame := range v.Backtrace {
		d.line(name, strings.ReplaceAll(frame, "\t", "    "))
		name = ""
	}
	return d.String()
}

func sinceP(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return view.Since(*t, now)
}
