package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

func (s *Server) limitList(r *http.Request) (any, error) {
	found, err := view.Limits(r.Context(), s.o.Store)
	return list{Items: some(found)}, err
}

func (s *Server) limitsPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "limits", "Limits")
	s.sampled(r.Context(), &f)
	return &pages.Limits{Frame: f, Rows: part(s, r, "rows", func(ctx context.Context) ([]view.Limit, error) {
		return view.Limits(ctx, s.o.Store)
	})}, nil
}

// overriding is the body of an override.
type overriding struct {
	Concurrency *int   `json:"concurrency"`
	Rate        string `json:"rate"`
	Burst       int64  `json:"burst"`
	For         string `json:"for"`
}

func (s *Server) setLimit(r *http.Request) (did, error) {
	name, said := named(r, "limit"), overriding{For: "1h"}
	if err := body(r, &said); err != nil {
		return did{}, err
	}
	span, ok := filter.Span(said.For)
	if !ok || span <= 0 {
		return did{}, badRequest("for is %s; use a duration such as 30m or 2d", quoted(said.For))
	}
	o, err := view.OverrideOf(name, said.Concurrency, said.Rate, said.Burst, time.Now().Add(span))
	if err != nil {
		return did{}, badRequest("%s", err)
	}
	rules, err := view.LimitRules(r.Context(), s.o.Store)
	if err != nil {
		return did{}, err
	}
	if rule, _, _ := strings.Cut(name, ":"); rules[rule] == "" {
		return did{}, &Error{Status: http.StatusNotFound, Code: "not_found", Message: "no daemon has a limit " + quoted(rule)}
	}
	if err := s.o.Store.SetLimit(r.Context(), o); err != nil {
		return did{}, err
	}
	s.noted(r, store.EventOrdered, "limit "+name, "overridden until "+o.Until.UTC().Format(time.RFC3339), 1)
	return did{Outcome: "overridden"}, nil
}

func (s *Server) resetLimit(r *http.Request) (did, error) {
	name := named(r, "limit")
	was, err := s.o.Store.ResetLimit(r.Context(), name)
	if err == nil && was {
		s.noted(r, store.EventOrdered, "limit "+name, "no longer overridden", 1)
	}
	return outcome(was, "reset", "was_not_overridden"), err
}

// limitUse is what all keys of a limit have in use.
type limitUse struct {
	name                        string
	running, waiting, throttled int64
}

// readLimits sums up limits by their names, as there is any number of keys.
func (s *sampler) readLimits(ctx context.Context) (uses []limitUse, err error) {
	limits, err := view.Limits(ctx, s.o.Store)
	if err != nil || len(limits) == 0 {
		return nil, err
	}
	throttled, err := s.o.Store.Throttled(ctx)
	for i := range limits {
		l := &limits[i]
		at := slices.IndexFunc(uses, func(u limitUse) bool { return u.name == l.Name })
		if at < 0 {
			at, uses = len(uses), append(uses, limitUse{name: l.Name, throttled: throttled[l.Name]})
		}
		uses[at].running, uses[at].waiting = uses[at].running+l.Running, uses[at].waiting+l.Waiting
	}
	return uses, err
}

func limitMetrics(b *exposition, uses []limitUse) {
	for _, m := range []struct {
		name, kind, help string
		value            func(u *limitUse) int64
	}{
		{"resqued_limit_used", "gauge", "Running jobs that count under a limit, of all keys.", func(u *limitUse) int64 { return u.running }},
		{"resqued_limit_waiting", "gauge", "Jobs that wait for a limit, of all keys.", func(u *limitUse) int64 { return u.waiting }},
		{"resqued_limit_throttled_total", "counter", "Jobs that were over a limit when they were taken.", func(u *limitUse) int64 { return u.throttled }},
	} {
		b.metric(m.name, m.kind, m.help)
		for i := range uses {
			b.value(m.name, float64(m.value(&uses[i])), "limit", uses[i].name)
		}
	}
}
