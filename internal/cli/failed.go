package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// failedLimit is how many of the newest failures are looked at.
	failedLimit = 1000
	// failedSearch is how many are looked at for those that a filter selects.
	failedSearch = 100_000
	// failedPage is how many are fetched at a time: each may be as large as a job.
	failedPage = 200
	// idLength is how much of a digest is shown; a shorter prefix finds it too.
	idLength = 12
)

// failureView is one record of a list of failures.
type failureView struct {
	// ID is the digest of the record and, behind "@", its place, counted from the oldest.
	ID string `json:"id"`
	// List is failed, or one of Resque's multi-queue failure backend.
	List      string          `json:"list"`
	Class     string          `json:"class"`
	Args      json.RawMessage `json:"args"`
	Queue     string          `json:"queue"`
	Exception string          `json:"exception"`
	Error     string          `json:"error"`
	FailedAt  *time.Time      `json:"failed_at"`
	// Attempts is how often a job has run that was allowed to run more than once.
	Attempts  int      `json:"attempts,omitempty"`
	RetriedAt string   `json:"retried_at,omitempty"`
	Worker    string   `json:"worker,omitempty"`
	Backtrace []string `json:"backtrace,omitempty"`
	// KeptAs is the id under which the payload is kept that is too large for its record, and
	// KeptSize its size in bytes; see resqued parked. Payload and Args are a reference then.
	KeptAs   string `json:"kept_as,omitempty"`
	KeptSize int64  `json:"kept_size,omitempty"`
	// Payload is what was pushed; only shown for single records.
	Payload string `json:"payload,omitempty"`
}

// failureGroup is what failed in the same way.
type failureGroup struct {
	Count     int        `json:"count"`
	Class     string     `json:"class"`
	Exception string     `json:"exception"`
	Error     string     `json:"error"`
	Queue     string     `json:"queue"`
	First     *time.Time `json:"first"`
	Last      *time.Time `json:"last"`
}

// failedOptions say which failures are listed.
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
		return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.listFailed(ctx, s, o) })
	}
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().BoolVar(&o.flat, "flat", false, "one line for each failure instead of one for each kind")
		c.Flags().Int64Var(&o.limit, "limit", failedLimit, "how many of the newest failures to look at; with a filter 100000")
		o.add(c, a)
		return c
	}
	parent := flags(&cobra.Command{
		Use: "failed", Short: "list failed jobs, show, retry or remove them", RunE: ls,
		Long: `List failed jobs, those that failed in the same way together, or show one with its
payload and backtrace: those of the failed list and of the lists that Resque's multi-queue
failure backend has for queues.

An id is a digest of the record and its place among the others, counted from the oldest. The
beginning of the digest does, too, but takes a look at all records.`,
		Example: "  " + a.name + " failed\n  " + a.name + " failed --flat --class Mail\n  " + a.name + " failed show 0af6af819782@41",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	})
	parent.AddCommand(flags(&cobra.Command{
		Use: "ls", Short: "list failed jobs (what the bare noun does)", Args: exactly(0, "no arguments"), RunE: ls,
	}))
	parent.AddCommand(&cobra.Command{
		Use: "show ID…", Short: "show failures with their backtraces",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("See: "+a.name+" failed --flat", "which failure?")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.showFailed(ctx, s, args) })
		},
	}, a.editFailedCommand(true), a.editFailedCommand(false))
	return parent
}

func (a *cli) listFailed(ctx context.Context, s *store.Store, o failedOptions) error {
	views, partial, err := failures(ctx, s, o)
	if err != nil {
		return err
	}
	l := groupFailures(views)
	if o.flat {
		l = flatFailures(views)
	}
	if l.partial = partial; partial && a.flags.output != outJSON {
		a.note("only the newest %d failures were looked at; see --limit", o.limit)
	}
	a.noteParked(ctx, s)
	return a.print(l)
}

// findFailed returns the failures that ids name, each of which has to be one.
func (a *cli) findFailed(ctx context.Context, s *store.Store, ids []string) ([]store.FailureRecord, error) {
	refs := make([]store.FailureRef, len(ids))
	for i, id := range ids {
		refs[i] = store.ParseFailureRef(id)
	}
	found, err := s.FindFailures(ctx, refs)
	if err != nil {
		return nil, err
	}
	var records []store.FailureRecord
	for i, matches := range found {
		switch {
		case len(matches) == 0:
			return nil, notFound("failure", ids[i], a.recentFailures(ctx, s), a.name+" failed --flat")
		case len(matches) > 1:
			return nil, usage("Write more of it.", "%q is the beginning of %d failures", ids[i], len(matches))
		}
		records = append(records, matches...)
	}
	return records, nil
}

// recentFailures are ids that may have been meant.
func (a *cli) recentFailures(ctx context.Context, s *store.Store) (ids []string) {
	views, _, _ := failures(ctx, s, failedOptions{limit: failedPage}) // for a hint only
	for _, v := range views {
		ids = append(ids, v.name())
	}
	return ids
}

func (a *cli) showFailed(ctx context.Context, s *store.Store, ids []string) error {
	records, err := a.findFailed(ctx, s, ids)
	if err != nil {
		return err
	}
	views := make([]failureView, len(records))
	for i, record := range records {
		views[i] = viewFailure(record)
	}
	if a.flags.output == outJSON || a.flags.output == outName {
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

// failures reads the newest failures, those that a filter selects, without their whole
// detail. partial: there are older ones.
func failures(ctx context.Context, s *store.Store, o failedOptions) (views []failureView, partial bool, err error) {
	lists, err := s.FailureLists(ctx)
	if err != nil {
		return nil, false, err
	}
	several, looked := 0, int64(0)
	for _, list := range lists {
		before := len(views)
		for offset := int64(0); offset < o.limit; {
			records, total, err := s.FailedList(ctx, list, offset, min(failedPage, o.limit-offset))
			if err != nil {
				return nil, false, err
			}
			for _, record := range records {
				if o.filtered() && !o.filter.Matches(record.Raw) {
					continue
				}
				v := viewFailure(record)
				v.Backtrace, v.Payload = nil, ""
				views = append(views, v)
			}
			offset += int64(len(records))
			if more := offset < total; !more || len(records) == 0 {
				looked += offset
				break
			} else if offset >= o.limit {
				looked += offset
				partial = true
			}
		}
		if len(views) > before {
			several++
		}
	}
	if several < 2 {
		return views, partial, nil
	}
	slices.SortStableFunc(views, func(a, b failureView) int { return b.at().Compare(a.at()) })
	if partial = partial || looked > o.limit; !o.filtered() && int64(len(views)) > o.limit {
		views = views[:o.limit]
	}
	return views, partial, nil
}

// name is what a failure is called in lists.
func (v *failureView) name() string {
	digest, place, _ := strings.Cut(v.ID, "@")
	return digest[:idLength] + "@" + place
}

// at is when the job failed, as far as is known.
func (v *failureView) at() time.Time {
	if v.FailedAt == nil {
		return time.Time{}
	}
	return *v.FailedAt
}

// viewFailure reads a record. What is no record is shown all the same.
func viewFailure(record store.FailureRecord) failureView {
	v := failureView{ID: client.FailureID(record.Raw, record.Index), List: record.List, Args: json.RawMessage("null")}
	f, err := wire.ParseFailure(record.Raw)
	if err != nil {
		v.Exception, v.Error, v.Payload = "(no failure record)", err.Error(), string(record.Raw)
		return v
	}
	payload := f.Pushed()
	v.Payload, v.Queue, v.Exception, v.Error = string(payload), f.Queue, f.Exception, f.Error
	v.Worker, v.Backtrace, v.RetriedAt, v.Attempts = f.Worker, f.Backtrace, f.RetriedAt, max(f.Attempts, 0)
	if !f.FailedAt.IsZero() {
		v.FailedAt = &f.FailedAt
	}
	if e, err := wire.Parse(payload, 0); err == nil {
		v.Class, v.Args = e.Class, json.RawMessage(e.Args.String())
		if ref, ok := wire.ReferenceOf(e); ok {
			v.KeptAs, v.KeptSize = ref.ID, ref.Size
			if v.Class = ref.Class; ref.Class == "" {
				v.Class = "(invalid)"
			}
		}
	} else {
		v.Class = "(invalid)"
	}
	return v
}

func groupFailures(views []failureView) *listing {
	groups, order := map[[3]string]*failureGroup{}, []*failureGroup{}
	for _, v := range views {
		key := [3]string{v.Class, v.Exception, v.Queue}
		g := groups[key]
		if g == nil {
			// The newest of a kind tells its error: the list is read from there.
			g = &failureGroup{Class: v.Class, Exception: v.Exception, Error: summary(v.Error), Queue: v.Queue, Last: v.FailedAt}
			groups[key] = g
			order = append(order, g)
		}
		g.Count++
		g.First = v.FailedAt
	}
	slices.SortStableFunc(order, func(a, b *failureGroup) int { return b.Count - a.Count })
	l := &listing{columns: []column{
		{title: "COUNT", right: true},
		{title: "CLASS"},
		{title: "ERROR"},
		{title: "LAST", right: true},
		{title: "FIRST", right: true, wide: true},
		{title: "QUEUE", wide: true},
		{title: "MESSAGE", wide: true},
	}}
	now := time.Now()
	for _, g := range order {
		l.add(g.Class, g, strconv.Itoa(g.Count), g.Class, g.Exception, sinceP(g.Last, now), sinceP(g.First, now), g.Queue, g.Error)
	}
	return l
}

func flatFailures(views []failureView) *listing {
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
		l.add(v.name(), v, v.name(), v.Class, v.Exception, summary(v.Error), sinceP(v.FailedAt, now),
			v.Queue, v.RetriedAt, string(v.Args), v.Worker)
	}
	return l
}

// failureText is one failure for a person to read.
func (a *cli) failureText(v failureView) string {
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
		line("failed", v.FailedAt.Format(time.RFC3339)+" ("+age(time.Since(*v.FailedAt))+" ago)")
	}
	if v.Attempts > 0 {
		line("attempts", strconv.Itoa(v.Attempts))
	}
	line("retried", wire.Printable(v.RetriedAt, 0))
	line("worker", wire.Printable(v.Worker, 0))
	if v.KeptAs != "" {
		line("size", strconv.FormatInt(v.KeptSize, 10)+" bytes, kept beside the record; see: "+a.name+" parked payload "+wire.Printable(v.KeptAs, 0))
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

// summary is the one line that tells most of an error: the first, and if that only
// announces what follows, as those of commands do, the last one too.
func summary(s string) string {
	s = strings.TrimSpace(s)
	first, rest, _ := strings.Cut(s, "\n")
	if !strings.HasSuffix(first, ":") || rest == "" {
		return first
	}
	return first + " " + strings.TrimSpace(rest[strings.LastIndexByte(rest, '\n')+1:])
}

func sinceP(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return since(*t, now)
}
