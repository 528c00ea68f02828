package web

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

const (
	// totalsEvery is how often the history's totals are read; daemons don't write them more often.
	totalsEvery = 10 * time.Second
	maxPoints   = 1500
)

// spanned holds what was read for each of view.Spans.
type spanned[T any] [len(view.Spans)]recent[T]

func (c *spanned[T]) of(span view.Span) *recent[T] { return &c[slices.Index(view.Spans[:], span)] }

func (s *Server) readClasses(ctx context.Context, span view.Span) pages.Widget[[]view.Class] {
	return s.classes.of(span).kept(ctx, s.sampler, func(ctx context.Context) ([]view.Class, error) {
		return view.Classes(ctx, s.o.Store, span, time.Now())
	})
}

// classesOf reads the classes of the span since and until, or of the one that is named.
func (s *Server) classesOf(r *http.Request, span view.Span) (pages.Widget[[]view.Class], error) {
	since, until := r.URL.Query().Get("since"), r.URL.Query().Get("until")
	if since == "" && until != "" {
		return pages.Widget[[]view.Class]{}, badRequest("until is %s; give since too", quoted(until))
	}
	if since == "" {
		return s.readClasses(r.Context(), span), nil
	}
	span, to, err := view.Between(since, until, time.Now())
	if err != nil {
		return pages.Widget[[]view.Class]{}, badRequest("%s", err)
	}
	return part(s, r, "classes", func(ctx context.Context) ([]view.Class, error) { return view.Classes(ctx, s.o.Store, span, to) }), nil
}

func spanOf(r *http.Request) (view.Span, error) {
	name := r.URL.Query().Get("span")
	if name == "" {
		return view.Spans[0], nil
	}
	names := make([]string, len(view.Spans))
	for i, s := range view.Spans {
		if names[i] = s.Name; s.Name == name {
			return s, nil
		}
	}
	return view.Span{}, badRequest("span is %s; use %s", quoted(name), strings.Join(names, ", "))
}

func (s *Server) classList(r *http.Request) (any, error) {
	span, err := spanOf(r)
	if err != nil {
		return nil, err
	}
	part, err := s.classesOf(r, span)
	if err != nil {
		return nil, err
	}
	return listed(part, some(part.Data))
}

func (s *Server) class(r *http.Request) (any, error) {
	span, err := spanOf(r)
	if err != nil {
		return nil, err
	}
	found, _, stale, err := of(s.readClasses(r.Context(), span))
	if err != nil {
		return nil, err
	}
	name := named(r, "class")
	i := slices.IndexFunc(found, func(c view.Class) bool { return c.Class == name })
	if i < 0 {
		return nil, &view.NotFoundError{Kind: "class", Name: name}
	}
	now := time.Now()
	points, err := view.Series(r.Context(), s.o.Store, history.Name{Kind: history.Class, Name: name}, now.Add(-span.Length), now, span.Step)
	if err != nil {
		return nil, err
	}
	return struct {
		view.Class
		StepS  int64        `json:"step_s"`
		Points []view.Point `json:"points"`
		Stale  string       `json:"stale,omitempty"`
	}{found[i], int64(span.Step.Seconds()), points, stale}, nil
}

// instant reads a time parameter: seconds since 1970, or RFC 3339.
func instant(r *http.Request, name string, fallback time.Time) (time.Time, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return fallback, nil
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 && n < 1<<38 {
		return time.Unix(n, 0), nil
	}
	at, err := time.Parse(time.RFC3339, v)
	if err != nil || at.Year() < 1970 {
		return time.Time{}, badRequest("%s is %s; use a time such as 2026-11-24T10:00:00Z, or seconds since 1970", name, quoted(v))
	}
	return at, nil
}

// period reads the requested time range, by default the last hour.
func period(r *http.Request, step, reach time.Duration) (from, to time.Time, err error) {
	if to, err = instant(r, "to", time.Now()); err != nil {
		return from, to, err
	}
	if from, err = instant(r, "from", to.Add(-time.Hour)); err != nil {
		return from, to, err
	}
	switch {
	case !from.Before(to):
		return from, to, badRequest("from is %s, which is not before %s", from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	case to.Sub(from) > maxPoints*step:
		return from, to, badRequest("from %s to %s are more than %d points; use a longer step or a shorter time", from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), maxPoints)
	}
	if oldest := time.Now().Add(-reach); from.Before(oldest) && to.After(oldest) {
		from = oldest // older data is not kept
	}
	return from, to, nil
}

func (s *Server) history(r *http.Request) (any, error) {
	q := &query{Request: r}
	text := q.text("series")
	if q.err != nil {
		return nil, q.err
	}
	name, err := view.SeriesName(text)
	if err != nil {
		return nil, badRequest("series is %s; use all, or class:, queue: or host: with a name", quoted(text))
	}
	steps := map[string]time.Duration{"1m": time.Minute, "5m": 5 * time.Minute, "1h": time.Hour}
	step, ok := steps[cmp.Or(r.URL.Query().Get("step"), "5m")]
	if !ok {
		return nil, badRequest("step is %s; use 1m, 5m or 1h", quoted(r.URL.Query().Get("step")))
	}
	reach := 25 * time.Hour
	if step == time.Hour {
		reach = 31 * 24 * time.Hour
	}
	from, to, err := period(r, step, reach)
	if err != nil {
		return nil, err
	}
	points, err := view.Series(r.Context(), s.o.Store, name, from, to, step)
	return struct {
		list
		Series string `json:"series"`
		StepS  int64  `json:"step_s"`
	}{list{Items: points}, view.SeriesText(name), int64(step.Seconds())}, err
}

// levels answers with the length of a queue by the minute.
func (s *Server) levels(r *http.Request) (any, error) {
	from, to, err := period(r, time.Minute, 25*time.Hour)
	if err != nil {
		return nil, err
	}
	found, err := view.Levels(r.Context(), s.o.Store, named(r, "queue"), from, to)
	return list{Items: found}, err
}

// liveSpan is the span of a chart of samples rather than of the history.
const liveSpan = "live"

// chosen returns the links to a page's spans and the chosen span; ok = false means the samples. at
// returns the page's address with parameters.
func chosen(r *http.Request, at func(pairs ...string) template.URL, live bool, spans []view.Span) (links []pages.Link, span view.Span, ok bool) {
	name := r.URL.Query().Get("span")
	i := slices.IndexFunc(spans, func(s view.Span) bool { return s.Name == name })
	if live {
		links = append(links, pages.Link{Text: liveSpan, URL: at(), Current: i < 0})
	} else {
		i = max(i, 0)
	}
	for j, s := range spans {
		links = append(links, pages.Link{Text: s.Name, URL: at("span", s.Name), Current: i == j})
	}
	if i < 0 {
		return links, view.Span{}, false
	}
	return links, spans[i], true
}

func (s *Server) flowChart(ctx context.Context, name history.Name, span view.Span) (*pages.Chart, error) {
	now := time.Now()
	points, err := view.Series(ctx, s.o.Store, name, now.Add(-span.Length), now, span.Step)
	if err != nil {
		return nil, err
	}
	c := pages.FlowOf(points, span.Step, now)
	c.Marks = s.marks(ctx, c.From)
	return c, nil
}

func (s *Server) classesPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "classes", "Classes")
	s.sampled(r.Context(), &f)
	sort := r.URL.Query().Get("sort")
	q := r.URL.Query()
	p := &pages.Classes{Frame: f, Sort: cmp.Or(sort, "time"), Since: q.Get("since"), Until: q.Get("until")}
	links, span, _ := chosen(r, func(pairs ...string) template.URL { return f.With("/classes", append(pairs, "sort", sort)...) }, false, view.Spans[:])
	if p.Spans, p.Span = links, span.Name; p.Since != "" {
		for i := range p.Spans {
			p.Spans[i].Current = false
		}
	}
	all, err := s.classesOf(r, span)
	if err != nil {
		return nil, err
	}
	p.Rows = pages.Made(slices.Clone(all.Data), all)
	pages.SortClasses(p.Rows.Data, p.Sort)
	return p, nil
}

func (s *Server) classPage(r *http.Request) (pages.Page, error) {
	name := named(r, "class")
	f := s.frame(r, "classes", name)
	s.sampled(r.Context(), &f)
	p := &pages.Class{Frame: f, Name: name}
	links, span, _ := chosen(r, func(pairs ...string) template.URL { return f.At("/classes", name, pairs...) }, false, view.Spans[:])
	p.Spans = links
	is := func(c view.Class) bool { return c.Class == name }
	all := s.readClasses(r.Context(), span)
	if all.OK && !slices.ContainsFunc(all.Data, is) {
		// It may have run earlier.
		if longest := s.readClasses(r.Context(), view.Spans[len(view.Spans)-1]); longest.OK && !slices.ContainsFunc(longest.Data, is) {
			return nil, &view.NotFoundError{Kind: "class", Name: name}
		}
	}
	p.Row = pages.Made(view.Class{Class: name}, all)
	if i := slices.IndexFunc(all.Data, is); i >= 0 {
		p.Row.Data = all.Data[i]
	}
	of := history.Name{Kind: history.Class, Name: name}
	p.Chart = part(s, r, "chart", func(ctx context.Context) (*pages.Chart, error) { return s.flowChart(ctx, of, span) })
	p.Times = part(s, r, "times", func(ctx context.Context) (*pages.Chart, error) {
		step := max(span.Step, time.Duration(history.FiveMinutes)) // points of a minute have no times
		now := time.Now()
		points, err := view.Series(ctx, s.o.Store, of, now.Add(-span.Length), now, step)
		return pages.TimesOf(points, step, now), err
	})
	return p, nil
}

// flowOf is the chart of all jobs in a span.
func (s *Server) flowOf(ctx context.Context, span view.Span) pages.Widget[*pages.Chart] {
	return s.flows.of(span).kept(ctx, s.sampler, func(ctx context.Context) (*pages.Chart, error) { return s.flowChart(ctx, history.AllJobs(), span) })
}
