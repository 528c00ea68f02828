package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
	"github.com/resqued/resqued/internal/wire"
)

// conditions select what a list shows and what acts on all of it change.
type conditions struct {
	pages.Filter
	jobs client.Filter
	*filter.Matcher
}

// conditions reads those in the address of a request. Without any, all jobs are selected.
func (q *query) conditions(kind filter.Kind) conditions {
	read, err := readConditions(q.Context(), filter.Given(q.URL.Query(), kind), kind)
	if unread := checkQuery(q.Request); unread != nil {
		err = unread
	}
	if q.err == nil && err != nil {
		q.err = err
	}
	return read
}

func readConditions(ctx context.Context, words url.Values, kind filter.Kind) (conditions, error) {
	c := conditions{Filter: pages.Filter{Kind: kind, Words: words}}
	for name, values := range words {
		for _, v := range values {
			switch {
			case len(v) > maxParameter:
				return c, badRequest("%s has %d bytes; %d are allowed", name, len(v), maxParameter)
			case !utf8.ValidString(v):
				return c, badRequest("%s is not UTF-8", name)
			}
		}
	}
	parsed, err := filter.Parse(words, kind, time.Now())
	if err == nil {
		parsed.All = !parsed.Any()
		c.jobs = client.Filter(parsed)
		c.Matcher, err = parsed.Matcher(ctx, kind)
	}
	if err != nil {
		return c, badRequest("%s", wire.Printable(err.Error(), maxQuoted))
	}
	return c, nil
}

// record returns a match for failure records; nil for all.
func (c conditions) record() func(record []byte) bool {
	if !c.Any() {
		return nil
	}
	return func(record []byte) bool {
		_, ok := c.Failure(record)
		return ok
	}
}

// command is the act in a shell, "" if it is too long to copy.
func (s *Server) commandFor(verb string, c conditions, more ...string) string {
	filter.Each(c.Words, func(word, value string) { verb += " --" + word + "=" + view.Shell(value) })
	if c.jobs.All {
		verb += " --all"
	}
	return s.command(strings.Join(append([]string{verb}, more...), " "))
}

// about says in a question what is selected.
func (c conditions) about() (details []string) {
	if c.Any() {
		details = append(details, wire.Printable("Selected by: "+filter.Text(c.Words)+".", maxQuoted))
	}
	return details
}

// suffix is the part of an event's text that says what was selected.
func (c conditions) suffix() string {
	if !c.Any() {
		return ""
	}
	return ": " + wire.Printable(filter.Text(c.Words), maxQuoted)
}

// pick is the body of an act on many jobs.
type pick struct {
	IDs []string `json:"ids"`
	// Filter has the same conditions as the address of the list, or all: true.
	Filter map[string]json.RawMessage `json:"filter"`
	// DryRun only counts them. Expect refuses if there are more.
	DryRun bool   `json:"dry_run"`
	Expect *int64 `json:"expect"`
	// Background answers at once with the id of an operation.
	Background bool `json:"background"`
	// To and Head say where jobs are moved.
	To   string `json:"to"`
	Head bool   `json:"head"`

	conditions
}

// read reads the body, which has either ids or a filter. Waiting jobs have no ids of their own.
func (p *pick) read(r *http.Request, kind filter.Kind) error {
	if err := body(r, p); err != nil {
		return err
	}
	switch {
	case kind == filter.Waiting && len(p.IDs) > 0:
		return badRequest("jobs that wait are selected by filter; it may have an id")
	case kind != filter.Waiting && (p.To != "" || p.Head):
		return badRequest("to and head are for jobs that are moved")
	case (len(p.IDs) > 0) == (p.Filter != nil):
		return badRequest("name jobs by ids, or select them by filter")
	case slices.Contains(p.IDs, ""): // it begins every id
		return badRequest("an id is empty")
	case p.Filter == nil:
		p.jobs.IDs = p.IDs
		return nil
	}
	words, known, all := url.Values{}, filter.Words(kind), false
	if kind == filter.Waiting { // the queue is in the path
		known = slices.DeleteFunc(known, func(w filter.Word) bool { return w.Name == "queue" })
	}
	for name, raw := range p.Filter {
		var one string
		var many []string
		switch {
		case name == "all":
			if json.Unmarshal(raw, &all) != nil || !all {
				return badRequest("filter: all can only be true")
			}
		case !slices.ContainsFunc(known, func(w filter.Word) bool { return w.Name == name }):
			return badRequest("filter: there is no %s; use %s, or all: true", quoted(name), wordNames(known))
		case name == "args" && len(raw) > 0 && raw[0] == '[':
			words.Set(name, string(raw))
		case json.Unmarshal(raw, &one) == nil && one != "":
			words.Set(name, one)
		case json.Unmarshal(raw, &many) == nil && len(many) > 0 && !slices.Contains(many, ""):
			words[name] = many
		default:
			return badRequest("filter: %s is %s; use a text or a list of texts", name, quoted(string(raw)))
		}
	}
	var err error
	if p.conditions, err = readConditions(r.Context(), words, kind); err == nil && all != p.jobs.All {
		err = badRequest("filter needs %s, or all: true", wordNames(known))
	}
	return err
}

func wordNames(words []filter.Word) string {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = w.Name
	}
	return strings.Join(names, ", ")
}

// change is an act on many things, of which matched were found.
type change struct {
	// title is its heading, what the outcome: "retried".
	title, what string
	matched     int
	acting      func() error
	do          func(ctx context.Context, progress func(done int)) (int, error)
}

// bulk answers the request for a change as its body says.
func (s *Server) bulk(r *http.Request, p *pick, c change) (any, error) {
	if p.DryRun {
		return counted("would_be_"+c.what, int64(c.matched)), nil
	}
	if p.Expect != nil && int64(c.matched) > *p.Expect {
		return nil, &Error{Status: http.StatusConflict, Code: "changed", Message: fmt.Sprintf("there are %s by now", view.Grouped(int64(c.matched))), Hint: "Look again."}
	}
	if err := c.acting(); err != nil {
		return nil, err
	}
	if p.Background {
		id, err := s.operations.start(c.title, int64(c.matched), "", c.do)
		return struct {
			did
			Operation string `json:"operation"`
		}{did{Outcome: "begun"}, id}, err
	}
	// A visitor that goes away has not cancelled the rest.
	n, err := c.do(context.WithoutCancel(r.Context()), nil)
	return struct {
		did
		Matched int `json:"matched"`
	}{counted(c.what, int64(n)), c.matched}, partly(err, n)
}
