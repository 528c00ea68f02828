package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
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
	failureFilter
	flat  bool
	limit int64
}

func (a *cli) failedCommand() *cobra.Command {
	var o failedOptions
	ls := func(c *cobra.Command, _ []string) error {
		if o.limit < 1 {
			return usage("", "--limit %d: use 1 or more", o.limit)
		}
		if err := o.resolve(time.Now()); err != nil {
			return err
		}
		if o.filtered() && !c.Flags().Changed("limit") {
			o.limit = failedSearch
		}
		return a.list(c, true, func(ctx context.Context, s *store.Store) (*listing, error) { return a.listFailed(ctx, s, o) })
	}
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().BoolVar(&o.flat, "flat", false, "a line per failure, not per kind")
		c.Flags().Int64Var(&o.limit, "limit", failedLimit, "most failures to read, newest first; 100000 with a filter")
		o.add(c, a)
		return c
	}
	parent := flags(&cobra.Command{
		Use: "failed", Annotations: shows, Short: "list, show, retry or remove failed jobs", RunE: ls,
		Long: `List failed jobs, grouped by kind, or show one with its payload and backtrace.
This covers the failed list and the per-queue lists of Resque's multi-queue
failure backend.

Failures are of one kind if class, exception, queue and message are the same.
In messages, numbers count as #, UUIDs and other ids as <id>, quoted texts as
"…". EXAMPLE (-o wide, -o json) is the id of the newest, for "failed show".

An id is a digest of the record and its place, counted from the oldest. The
beginning of the digest is enough, but then all records are read.`,
		Example: "  " + a.name + " failed --newer-than 1h\n  " + a.name + " failed --flat --class Mail\n  " + a.name + " failed show 0af6af819782@41",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	})
	parent.AddCommand(flags(&cobra.Command{
		Use: "ls", Annotations: shows, Short: "list failed jobs (default)", Args: exactly(0, "no arguments"), RunE: ls,
	}))
	parent.AddCommand(&cobra.Command{
		Use: "show ID…", Annotations: shows, Short: "show failures with their backtraces",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("See: "+a.again()+" failed --flat", "which failure?")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.showFailed(ctx, s, args) })
		},
	}, a.editFailedCommand(true), a.editFailedCommand(false))
	return parent
}

func (a *cli) listFailed(ctx context.Context, s *store.Store, o failedOptions) (*listing, error) {
	l, err := a.failures(ctx, s, o)
	if err != nil {
		return nil, err
	}
	if l.partial && a.flags.output != outJSON {
		a.note("only the newest %d failures were looked at; see --limit", o.limit)
	}
	if len(l.rows) == 0 && a.flags.output != outJSON {
		if o.filtered() {
			a.note("no failure fits")
		} else {
			a.note("no failures")
		}
	}
	a.noteParked(ctx, s)
	return l, nil
}

// failures returns the selected failures, one by one or in groups.
func (a *cli) failures(ctx context.Context, s *store.Store, o failedOptions) (*listing, error) {
	if o.flat {
		views, partial, err := view.Failures(ctx, s, o.query())
		for i := range views {
			views[i].Store = a.listed
		}
		l := flatFailures(views)
		l.partial = partial
		return l, err
	}
	groups, err := view.GroupFailures(ctx, s, o.query())
	if err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		g.Store = a.listed
	}
	l := groupFailures(groups.Groups)
	l.partial = groups.Partial || groups.Others > 0
	if groups.Others > 0 && a.flags.output != outJSON {
		a.note("and %s of further kinds, which are too many to tell apart; use a filter, or --flat", plural(groups.Others, "failure"))
	}
	return l, nil
}

func (o failedOptions) query() view.FailureQuery {
	q := view.FailureQuery{Limit: o.limit}
	if o.filtered() {
		q.Match = o.filter.Matches
	}
	return q
}

func (a *cli) findFailed(ctx context.Context, s *store.Store, ids []string) ([]view.Failure, error) {
	views, err := view.FindFailures(ctx, s, ids)
	return views, lookup(err, a.again()+" failed --flat", nil)
}

func (a *cli) showFailed(ctx context.Context, s *store.Store, ids []string) error {
	views, err := a.findFailed(ctx, s, ids)
	if err != nil {
		return err
	}
	if !a.forPeople() {
		return a.print(flatFailures(views))
	}
	var b strings.Builder
	for i, v := range views {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(a.failureText(v))
	}
	return a.printText(b.String())
}

func groupFailures(groups []*view.FailureGroup) *listing {
	l := &listing{columns: []column{
		{title: "COUNT", right: true},
		{title: "CLASS"},
		{title: "ERROR"},
		{title: "LAST", right: true},
		{title: "MESSAGE"},
		{title: "FIRST", right: true, wide: true},
		{title: "QUEUE", wide: true},
		{title: "EXAMPLE", wide: true},
		{title: "NEWEST MESSAGE", wide: true},
	}}
	now := time.Now()
	for _, g := range groups {
		l.add(g.Class, g, strconv.Itoa(g.Count), g.Class, g.Exception, sinceP(g.Last, now), g.Pattern, sinceP(g.First, now), g.Queue, g.Example, g.Error)
	}
	return l
}

func flatFailures(views []view.Failure) *listing {
	l := &listing{columns: []column{
		{title: "ID"},
		{title: "CLASS"},
		{title: "ERROR"},
		{title: "MESSAGE"},
		{title: "AGE", right: true},
		{title: "QUEUE"},
		{title: "RETRIED", wide: true},
		{title: "ARGS", wide: true},
		{title: "WORKER", wide: true},
	}}
	now := time.Now()
	for _, v := range views {
		l.add(v.Name(), v, v.Name(), v.Class, v.Exception, view.Summary(v.Error), sinceP(v.FailedAt, now),
			v.Queue, v.RetriedAt, string(v.Args), v.Worker)
	}
	return l
}

func (a *cli) failureText(v view.Failure) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			b.WriteString(name + strings.Repeat(" ", 11-len(name)) + value + "\n")
		}
	}
	line("id", v.ID)
	if v.List != "failed" {
		line("list", wire.Printable(v.List, 0))
	}
	line("class", wire.Printable(v.Class, 0))
	line("args", wire.Printable(string(v.Args), 0))
	line("queue", wire.Printable(v.Queue, 0))
	if v.FailedAt != nil {
		line("failed", v.FailedAt.Format(time.RFC3339)+" ("+view.Age(time.Since(*v.FailedAt))+" ago)")
	}
	if v.Attempts > 0 {
		line("attempts", strconv.Itoa(v.Attempts))
	}
	line("retried", wire.Printable(v.RetriedAt, 0))
	line("worker", wire.Printable(v.Worker, 0))
	if v.KeptAs != "" {
		line("size", strconv.FormatInt(v.KeptSize, 10)+" bytes, kept next to the record; see: "+a.again()+" parked payload "+wire.Printable(v.KeptAs, 0))
	}
	line("payload", wire.Printable(v.Payload, 0))
	line("exception", a.paint(red, wire.Printable(v.Exception, 0)))
	for i, text := range strings.Split(strings.TrimRight(v.Error, "\n"), "\n") {
		name := "error"
		if i > 0 {
			name = ""
		}
		line(name, wire.Printable(text, 0))
	}
	for i, frame := range v.Backtrace {
		name := "backtrace"
		if i > 0 {
			name = ""
		}
		line(name, wire.Printable(strings.ReplaceAll(frame, "\t", "    "), 0))
	}
	return b.String()
}

func sinceP(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return view.Since(*t, now)
}
