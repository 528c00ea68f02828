package web

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (s *Server) runSchedule(r *http.Request) (did, error) {
	all, _, err := view.Schedules(r.Context(), s.o.Store, s.o.Checks.Schedules)
	if err != nil {
		return did{}, err
	}
	found, err := view.FindSchedules(all, []string{named(r, "name")})
	if err != nil {
		return did{}, err
	}
	v := found[0]
	if v.Class == "" || v.Queue == "" {
		return did{}, &Error{Status: http.StatusConflict, Code: "invalid", Message: "the schedule cannot run: " + wire.Printable(v.Invalid, maxQuoted)}
	}
	payload, err := wire.EncodePayload(v.Class, v.Pushed())
	if err != nil {
		return did{}, err
	}
	if err := s.acting(r, "run a schedule", slog.String("schedule", v.Name), slog.String("class", v.Class)); err != nil {
		return did{}, err
	}
	enqueued, err := s.o.Jobs.EnqueueRaw(r.Context(), payload, client.Queue(v.Queue))
	s.noted(r, store.EventRan, "schedule "+v.Name, v.Class, done(err == nil))
	return did{Outcome: string(enqueued.Status)}, err
}

func (s *Server) runDelayed(r *http.Request) (any, error)    { return s.editDelayed(r, true) }
func (s *Server) removeDelayed(r *http.Request) (did, error) { return s.editDelayed(r, false) }

func (s *Server) editDelayed(r *http.Request, run bool) (did, error) {
	var names struct {
		IDs []string `json:"ids"`
	}
	if err := body(r, &names); err != nil {
		return did{}, err
	}
	if len(names.IDs) == 0 {
		return did{}, badRequest("name delayed jobs by ids")
	}
	what := "removed"
	if run {
		what = "enqueued"
	}
	n, err := s.undelay(r, names.IDs, run)
	return counted(what, n), partly(err, int(n))
}

// undelay enqueues delayed jobs before their time, or removes them.
func (s *Server) undelay(r *http.Request, ids []string, run bool) (n int64, err error) {
	jobs, err := view.FindDelayed(r.Context(), s.o.Store, ids, nil, view.DelayedFilter{})
	if err != nil {
		return 0, err
	}
	kind, what := store.EventRemoved, "remove delayed jobs"
	if run {
		kind, what = store.EventRan, "run delayed jobs"
	}
	if err := s.acting(r, what, slog.Any("ids", ids)); err != nil {
		return 0, err
	}
	// A visitor that goes away has not cancelled the rest.
	err = s.o.Store.Undelay(context.WithoutCancel(r.Context()), jobs, run, s.unique, func(_ store.DelayedJob, what store.FailedOutcome) {
		if what != store.FailedGone && what != store.FailedStuck {
			n++
		}
	})
	s.noted(r, kind, "delayed jobs", view.Plural(int(n), "delayed job"), n)
	return n, err
}
