package web

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// pausing returns the options of a pause from a form or the body, which may be missing.
func pausing(r *http.Request) (o store.PauseOptions, err error) {
	said := struct {
		For    string `json:"for"`
		Reason string `json:"reason"`
	}{r.PostForm.Get("for"), r.PostForm.Get("reason")}
	if r.PostForm == nil && r.ContentLength != 0 {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return o, err
		}
		if r.Body = io.NopCloser(bytes.NewReader(text)); len(text) > 0 {
			if err := body(r, &said); err != nil {
				return o, err
			}
		}
	}
	if said.For != "" {
		var ok bool
		if o.For, ok = filter.Span(said.For); !ok {
			return o, badRequest("for is %s; use a duration such as 30m or 2d", quoted(said.For))
		}
	}
	o.Reason, o.By = said.Reason, author(r)
	if err := o.Check(); err != nil {
		return o, badRequest("%s", err)
	}
	return o, nil
}

// didPause notes a pause, which may change nothing.
func (s *Server) didPause(r *http.Request, what string, o store.PauseOptions, before, now *store.Pause, err error) (did, error) {
	changed := err == nil && before != now
	s.noted(r, store.EventPaused, what, o.String(), done(changed))
	return outcome(changed, "paused", "was_paused"), err
}

func (s *Server) pauseQueue(r *http.Request) (did, error) {
	queue := named(r, "queue")
	o, err := pausing(r)
	if err != nil {
		return did{}, err
	}
	s.acted(r, "pause a queue", slog.String("queue", queue))
	before, now, err := s.o.Store.Pause(r.Context(), queue, o)
	return s.didPause(r, "queue "+queue, o, before, now, err)
}

func (s *Server) resumeQueue(r *http.Request) (did, error) {
	queue := named(r, "queue")
	s.acted(r, "resume a queue", slog.String("queue", queue))
	changed, err := s.o.Store.Resume(r.Context(), queue)
	s.noted(r, store.EventResumed, "queue "+queue, "", done(changed))
	if err != nil || changed {
		return did{Outcome: "resumed"}, err
	}
	if _, all, err := s.o.Store.Paused(r.Context()); err != nil || all {
		return did{Outcome: "all_paused"}, err
	}
	return did{Outcome: "was_not_paused"}, nil
}

func (s *Server) pauseAll(r *http.Request) (did, error) {
	o, err := pausing(r)
	if err != nil {
		return did{}, err
	}
	s.acted(r, "pause all queues")
	before, now, err := s.o.Store.PauseAll(r.Context(), o)
	return s.didPause(r, "all queues", o, before, now, err)
}

func (s *Server) resumeAll(r *http.Request) (did, error) {
	s.acted(r, "resume all queues")
	changed, err := s.o.Store.ResumeAll(r.Context())
	s.noted(r, store.EventResumed, "all queues", "", done(changed))
	return outcome(changed, "resumed", "was_not_paused"), err
}

func (s *Server) purgeQueue(r *http.Request) (did, error) {
	queue := named(r, "queue")
	if err := s.acting(r, "purge a queue", slog.String("queue", queue)); err != nil {
		return did{}, err
	}
	n, err := s.o.Jobs.PurgeQueue(r.Context(), queue)
	s.noted(r, store.EventPurged, "queue "+queue, view.Plural(int(n), "waiting job"), n)
	return counted("purged", n), err
}

func (s *Server) removeQueue(r *http.Request) (did, error) {
	queue := named(r, "queue")
	if err := s.acting(r, "remove a queue", slog.String("queue", queue)); err != nil {
		return did{}, err
	}
	n, err := s.o.Jobs.RemoveQueue(r.Context(), queue)
	s.noted(r, store.EventRemoved, "queue "+queue, "with "+view.Plural(int(n), "job"), max(n, done(err == nil)))
	return counted("removed", n), err
}

func (s *Server) repairQueue(r *http.Request) (did, error) {
	queue := named(r, "queue")
	if err := s.acting(r, "repair a queue", slog.String("queue", queue)); err != nil {
		return did{}, err
	}
	report, err := s.o.Store.RepairUnique(r.Context(), queue)
	if err != nil {
		return did{}, err
	}
	s.noted(r, store.EventRepaired, "queue "+queue, "its keys did not match", done(report.Changed()))
	return outcome(report.Changed(), "repaired", "matched"), nil
}

func (s *Server) enqueue(r *http.Request) (any, error) {
	var job struct {
		Class string          `json:"class"`
		Args  json.RawMessage `json:"args"`
		Queue string          `json:"queue"`
		In    string          `json:"in"`
	}
	if err := body(r, &job); err != nil {
		return nil, err
	}
	var args []json.RawMessage
	if len(job.Args) > 0 && (json.Unmarshal(job.Args, &args) != nil || args == nil) {
		return nil, badRequest("args is %s; use a list", quoted(string(job.Args)))
	}
	if job.Class == "" {
		return nil, badRequest("class is missing")
	}
	var how []client.Option
	if job.Queue != "" {
		how = append(how, client.Queue(job.Queue))
	}
	if job.In != "" {
		d, err := time.ParseDuration(job.In)
		if err != nil || d < 0 {
			return nil, badRequest("in is %s; use a duration such as 10m", quoted(job.In))
		}
		how = append(how, client.In(d))
	}
	payload, err := wire.EncodePayload(job.Class, job.Args)
	if err != nil {
		return nil, badRequest("%s", wire.Printable(err.Error(), maxQuoted))
	}
	s.acted(r, "enqueue a job", slog.String("class", job.Class), slog.String("queue", job.Queue))
	pushed, err := s.o.Jobs.EnqueueRaw(r.Context(), payload, how...)
	if err != nil && !rdb.Unreachable(err) && rdb.Refusal(err) == "" {
		return nil, badRequest("%s", wire.Printable(err.Error(), maxQuoted))
	}
	return struct {
		Queue   string `json:"queue"`
		Outcome string `json:"outcome"`
	}{pushed.Queue, string(pushed.Status)}, err
}
