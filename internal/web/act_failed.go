package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func checkFailureIDs(ids []string) error {
	if slices.ContainsFunc(ids, func(id string) bool { return len(store.ParseFailureRef(id).Digest) < filter.LeastID }) {
		return badRequest("an id has at least %d characters", filter.LeastID)
	}
	return nil
}

func (s *Server) retryFailed(r *http.Request) (any, error)  { return s.editFailed(r, "retried") }
func (s *Server) removeFailed(r *http.Request) (any, error) { return s.editFailed(r, "removed") }

func (s *Server) editFailed(r *http.Request, what string) (any, error) {
	var p pick
	if err := p.read(r, filter.Failures); err != nil {
		return nil, err
	}
	if err := checkFailureIDs(p.IDs); err != nil {
		return nil, err
	}
	c, err := s.failedChange(r, what, p.conditions)
	if err != nil {
		return nil, err
	}
	return s.bulk(r, &p, c)
}

// failedChange selects failures to be retried or removed: exactly those, not others that come later.
func (s *Server) failedChange(r *http.Request, what string, c conditions) (change, error) {
	selection, err := s.o.Jobs.SelectFailed(r.Context(), c.jobs, what == "removed")
	if err != nil {
		return change{}, err
	}
	asked := r.Clone(context.WithoutCancel(r.Context()))
	return change{
		title: what + " failures", what: what, matched: selection.Report().Matched,
		acting: func() error {
			return s.acting(r, what+" failures", slog.Any("ids", c.jobs.IDs), slog.String("filter", filter.Text(c.Words)))
		},
		do: func(ctx context.Context, progress func(done int)) (int, error) {
			report, err := selection.Do(ctx, progress)
			s.noted(asked, store.EventKind(what), "failures", view.Plural(report.Done, "failure")+c.suffix(), int64(report.Done))
			return report.Done, err
		},
	}, nil
}

// waitingChange selects jobs that wait in a queue to be removed, or moved to another one.
func (s *Server) waitingChange(r *http.Request, queue, to string, head bool, c conditions) (change, error) {
	report, err := s.o.Jobs.CountWaiting(r.Context(), queue, c.jobs)
	if err != nil {
		return change{}, err
	}
	jobs, kind, text := c.jobs, store.EventRemoved, ""
	jobs.Limit = max(1, int(report.Done))
	if to != "" {
		kind, text = store.EventMoved, " to queue "+to
	}
	asked := r.Clone(context.WithoutCancel(r.Context()))
	return change{
		title: string(kind) + " waiting jobs", what: string(kind), matched: int(report.Done),
		acting: func() error {
			return s.acting(r, string(kind)+" waiting jobs", slog.String("queue", queue), slog.String("to", to), slog.String("filter", filter.Text(c.Words)))
		},
		do: func(ctx context.Context, progress func(done int)) (n int, err error) {
			// In the background, too, it selects as the visitor may.
			ctx = s.selecting(redact.Into(ctx, redact.From(asked.Context())))
			var done client.WaitingReport
			if to == "" {
				done, err = s.o.Jobs.RemoveWaiting(ctx, queue, jobs)
			} else {
				done, err = s.o.Jobs.MoveWaiting(ctx, queue, to, jobs, client.MoveOptions{Head: head, Progress: func(n int64) {
					if progress != nil {
						progress(int(n))
					}
				}})
			}
			s.noted(asked, kind, "queue "+queue, view.Plural(int(done.Done), "waiting job")+text+c.suffix(), done.Done)
			return int(done.Done), err
		},
	}, nil
}

func checkTarget(from, to string) error {
	err := wire.CheckQueue(to)
	if from == to {
		err = errors.New("the jobs wait there already")
	}
	if err != nil {
		return badRequest("to is %s: %s", quoted(to), wire.Printable(err.Error(), maxQuoted))
	}
	return nil
}

func (s *Server) removeWaiting(r *http.Request) (any, error) { return s.editWaiting(r, false) }
func (s *Server) moveWaiting(r *http.Request) (any, error)   { return s.editWaiting(r, true) }

func (s *Server) editWaiting(r *http.Request, move bool) (any, error) {
	var p pick
	if err := p.read(r, filter.Waiting); err != nil {
		return nil, err
	}
	if move != (p.To != "") {
		return nil, badRequest("to is the queue to which jobs are moved")
	}
	queue := named(r, "queue")
	if move {
		if err := checkTarget(queue, p.To); err != nil {
			return nil, err
		}
	}
	c, err := s.waitingChange(r, queue, p.To, p.Head, p.conditions)
	if err != nil {
		return nil, err
	}
	return s.bulk(r, &p, c)
}
