package web

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/selector/filter"
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
func (s *Server) removeDelayed(r *http.Request) (any, error) { return s.editDelayed(r, false) }

func (s *Server) editDelayed(r *http.Request, run bool) (any, error) {
	var p pick
	if err := p.read(r, filter.Delayed); err != nil {
		return nil, err
	}
	c, err := s.delayedChange(r, run, p.conditions)
	if err != nil {
		return nil, err
	}
	return s.bulk(r, &p, c)
}

// delayedChange selects delayed jobs to be enqueued before their time, or removed.
func (s *Server) delayedChange(r *http.Request, run bool, c conditions) (change, error) {
	jobs, err := view.FindDelayed(r.Context(), s.o.Store, c.jobs.IDs, nil, c.Matcher)
	if err != nil {
		return change{}, err
	}
	kind, verb, what := store.EventRemoved, "remove", "removed"
	if run {
		kind, verb, what = store.EventRan, "run", "enqueued"
	}
	asked := r.Clone(context.WithoutCancel(r.Context()))
	return change{
		title: what + " delayed jobs", what: what, matched: len(jobs),
		acting: func() error {
			return s.acting(r, verb+" delayed jobs", slog.Any("ids", c.jobs.IDs), slog.String("filter", filter.Text(c.Words)))
		},
		do: func(ctx context.Context, progress func(done int)) (n int, err error) {
			looked := 0
			err = s.o.Store.Undelay(ctx, jobs, run, s.unique, func(_ store.DelayedJob, what store.FailedOutcome) {
				if looked++; what != store.FailedGone && what != store.FailedStuck {
					n++
				}
				if progress != nil {
					progress(looked)
				}
			})
			s.noted(asked, kind, "delayed jobs", view.Plural(n, "delayed job")+c.suffix(), int64(n))
			return n, err
		},
	}, nil
}
