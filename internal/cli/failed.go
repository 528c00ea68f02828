package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// failedLimit is how many of the newest failures are looked at.
	failedLimit = 1000
	// failedPage is how many are fetched at a time: each may be as large as a job.
	failedPage = 200
	// idLength is how much of a digest is shown; a shorter prefix finds it too.
	idLength = 12
)

// failureView is one record of the failed list.
type failureView struct {
	ID        string          `json:"id"`
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

func (a *app) failedCommand() *cobra.Command {
	var flat bool
	limit := int64(failedLimit)
	ls := func(c *cobra.Command, _ []string) error {
		if limit < 1 {
			return usage("", "--limit %d: use 1 or more", limit)
		}
		return a.withStore(c, func(ctx context.Context, s *store.Store) error {
			return a.listFailed(ctx, s, limit, flat)
		})
	}
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().BoolVar(&flat, "flat", false, "one line for each failure instead of one for each kind")
		c.Flags().Int64Var(&limit, "limit", failedLimit, "how many of the newest failures to look at")
		return c
	}
	parent := flags(&cobra.Command{
		Use: "failed", Short: "list failed jobs, show, retry or remove them", RunE: ls,
		Long: `List failed jobs, those that failed in the same way together, or show one with its
payload and backtrace.`,
		Example: "  " + a.name + " failed\n  " + a.name + " failed --flat\n  " + a.name + " failed show 0af6af819782",
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
	show := &cobra.Command{
		Use: "show ID…", Short: "show failures with their backtraces",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("See: "+a.name+" failed --flat", "which failure?")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 {
				return usage("", "--limit %d: use 1 or more", limit)
			}
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				return a.showFailed(ctx, s, args, limit)
			})
		},
	}
	show.Flags().Int64Var(&limit, "limit", 10*failedLimit, "how many of the newest failures to search")
	parent.AddCommand(show, a.editFailedCommand(true), a.editFailedCommand(false))
	return parent
}

func (a *app) listFailed(ctx context.Context, s *store.Store, limit int64, flat bool) error {
	views, partial, err := failures(ctx, s, limit, nil)
	if err != nil {
		return err
	}
	l := groupFailures(views)
	if flat {
		l = flatFailures(views)
	}
	if l.partial = partial; partial && a.flags.output != outJSON {
		a.note("only the newest %d failures were looked at; see --limit", limit)
	}
	a.noteParked(ctx, s)
	return a.print(l)
}

// wholeIDs returns the ids that begin so, each of which has to be that of one failure.
func (a *app) wholeIDs(views []failureView, ids, known []string) ([]string, error) {
	var whole []string
	for _, id := range ids {
		var matches []string
		for _, v := range views {
			if strings.HasPrefix(v.ID, strings.ToLower(id)) {
				matches = append(matches, v.ID)
			}
		}
		slices.Sort(matches)
		switch matches = slices.Compact(matches); {
		case len(matches) == 0:
			return nil, notFound("failure", id, known, a.name+" failed --flat")
		case len(matches) > 1:
			return nil, usage("Write more of it.", "%q is the beginning of %d failures", id, len(matches))
		}
		whole = append(whole, matches...)
	}
	return whole, nil
}

func (a *app) showFailed(ctx context.Context, s *store.Store, ids []string, limit int64) error {
	var known []string
	views, _, err := failures(ctx, s, limit, func(v failureView) bool {
		known = append(known, v.ID[:idLength])
		return slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(v.ID, strings.ToLower(id)) })
	})
	if err != nil {
		return err
	}
	if _, err := a.wholeIDs(views, ids, known); err != nil {
		return err
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

// failures reads the newest failures, those that keep wants, with their whole
// detail; keep nil wants all, without it. partial: there are older ones.
func failures(ctx context.Context, s *store.Store, limit int64, keep func(failureView) bool) (views []failureView, partial bool, err error) {
	for offset := int64(0); offset < limit; {
		records, total, err := s.FailedList(ctx, offset, min(failedPage, limit-offset))
		if err != nil {
			return nil, false, err
		}
		for _, record := range records {
			v := viewFailure(record)
			switch {
			case keep == nil:
				v.Backtrace, v.Payload = nil, ""
			case !keep(v):
				continue
			}
			views = append(views, v)
		}
		offset += int64(len(records))
		if partial = offset < total; !partial || len(records) == 0 {
			return views, false, nil
		}
	}
	return views, partial, nil
}

// viewFailure reads a record. What is no record is shown all the same.
func viewFailure(record []byte) failureView {
	v := failureView{ID: wire.FailureID(record), Args: json.RawMessage("null")}
	f, err := wire.ParseFailure(record)
	if err != nil {
		v.Exception, v.Error, v.Payload = "(no failure record)", err.Error(), string(record)
		return v
	}
	payload := f.Original()
	v.Payload, v.Queue, v.Exception, v.Error = string(payload), f.Queue, f.Exception, f.Error
	v.Worker, v.Backtrace, v.RetriedAt, v.Attempts = f.Worker, f.Backtrace, f.RetriedAt, max(f.Attempts, 0)
	if !f.FailedAt.IsZero() {
		v.FailedAt = &f.FailedAt
	}
	if e, err := wire.Parse(payload, 0); err == nil {
		v.Class, v.Args = e.Class, json.RawMessage(e.Args.String())
		if ref, ok := wire.ReferenceOf(e); ok {
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
		l.add(v.ID[:idLength], v, v.ID[:idLength], v.Class, v.Exception, summary(v.Error), sinceP(v.FailedAt, now),
			v.Queue, v.RetriedAt, string(v.Args), v.Worker)
	}
	return l
}

// failureText is one failure for a person to read.
func (a *app) failureText(v failureView) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			b.WriteString(name + strings.Repeat(" ", 11-len(name)) + value + "\n")
		}
	}
	line("id", v.ID)
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
