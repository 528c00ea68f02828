package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

func (s *Server) eventList(r *http.Request) (any, error) {
	q := &query{Request: r}
	f := view.EventFilter{Before: q.text("cursor")}
	if kinds := q.text("kind"); kinds != "" {
		f.Kinds = strings.Split(kinds, ",")
	}
	if f.Limit = int(q.number("limit", pageSize, 1, store.MaxEvents)); q.err != nil {
		return nil, q.err
	}
	for _, kind := range f.Kinds {
		if !slices.Contains(store.EventKinds, store.EventKind(kind)) {
			return nil, badRequest("kind is %s, which is none", quoted(kind))
		}
	}
	found, next, err := s.events(r.Context(), f)
	return list{Items: found, Next: cursor(next)}, err
}

func (s *Server) events(ctx context.Context, f view.EventFilter) ([]view.Event, string, error) {
	found, next, err := view.Events(ctx, s.o.Store, f)
	if e, ok := errors.AsType[*store.EventIDError](err); ok {
		return nil, "", badRequest("%s", e.Error())
	}
	return some(found), next, err
}

var eventGroups = []struct {
	name, text string
	kinds      []store.EventKind
}{
	{"deploys", "starts and deploys", []store.EventKind{store.EventStarted, store.EventStopped, store.EventDeployed, store.EventReloaded, store.EventRefused}},
	{"deaths", "deaths and kills", []store.EventKind{store.EventDied, store.EventKilled, store.EventLockLost, store.EventHostDead, store.EventRecycled}},
	{"acts", "what people did", []store.EventKind{
		store.EventPaused, store.EventResumed, store.EventKilled, store.EventPurged, store.EventMoved, store.EventRemoved, store.EventRetried, store.EventReleased,
		store.EventRepaired, store.EventRan, store.EventOrdered, store.EventRequeued, store.EventCanceled,
	}},
}

func (s *Server) eventsPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "events", "Events")
	s.sampled(r.Context(), &f)
	q := &query{Request: r}
	filter := view.EventFilter{Limit: pageSize, Before: q.text("before")}
	p := &pages.Events{Frame: f, Kind: q.text("kind")}
	if q.err != nil {
		return nil, q.err
	}
	p.Kinds = []pages.Link{{Text: "all", URL: f.Path("/events")}}
	for _, g := range eventGroups {
		current := g.name == p.Kind
		if current {
			for _, kind := range g.kinds {
				filter.Kinds = append(filter.Kinds, string(kind))
			}
		}
		p.Kinds = append(p.Kinds, pages.Link{Text: g.text, URL: f.With("/events", "kind", g.name), Current: current})
	}
	switch {
	case len(filter.Kinds) > 0:
	case slices.Contains(store.EventKinds, store.EventKind(p.Kind)):
		filter.Kinds = []string{p.Kind}
	default:
		p.Kind, p.Kinds[0].Current = "", true
	}
	read := part(s, r, "rows", func(ctx context.Context) (v struct {
		rows []view.Event
		next string
	}, err error,
	) {
		v.rows, v.next, err = s.events(ctx, filter)
		return v, err
	})
	next := read.Data.next
	p.Rows = pages.Made(read.Data.rows, read)
	if filter.Before != "" {
		p.Pager.First = f.With("/events", "kind", p.Kind)
		p.Refresh = 0 // old events don't change
	}
	if next != "" {
		p.Pager.Next = f.With("/events", "kind", p.Kind, "before", next)
	}
	return p, nil
}

func (s *Server) recent(ctx context.Context) []view.Event {
	return s.newest[min(visitorIn(ctx).Role, Operator)].kept(ctx, s.sampler, func(ctx context.Context) ([]view.Event, error) {
		found, _, err := view.Events(ctx, s.o.Store, view.EventFilter{})
		return found, err
	}).Data
}

// about returns the newest events that mention a name.
func (s *Server) about(ctx context.Context, names ...string) (some []view.Event) {
	for _, e := range s.recent(ctx) {
		if len(some) < 20 && slices.ContainsFunc(names, func(n string) bool {
			return n != "" && (view.DaemonText(e.By) == n || strings.Contains(e.Subject, n) || strings.Contains(e.Text, n))
		}) {
			some = append(some, e)
		}
	}
	return some
}

// marks are the events shown in charts: deploys, and deaths of processes.
func (s *Server) marks(ctx context.Context, since time.Time) (marks []pages.Mark) {
	const most = 50
	for _, e := range s.recent(ctx) {
		switch store.EventKind(e.Kind) {
		case store.EventDeployed, store.EventReloaded, store.EventStarted, store.EventDied:
			if e.At.After(since) && len(marks) < most {
				marks = append(marks, pages.Mark{At: e.At, Text: e.Kind + ": " + cmp.Or(e.Text, e.Subject)})
			}
		}
	}
	return marks
}
