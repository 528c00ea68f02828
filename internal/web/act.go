package web

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// killGrace is how long a job that is killed may take to stop unless told otherwise; after it its
// process has to go.
const killGrace = 30 * time.Second

// did is the answer to an act.
type did struct {
	// Outcome says what came of it in a word, Count to how many things it was done.
	Outcome string `json:"outcome"`
	Count   *int64 `json:"count,omitempty"`
}

// acting checks that this program may change what stands in Redis, and logs who changes what.
func (s *Server) acting(r *http.Request, what string, about ...zap.Field) error {
	if unread, ok := errors.AsType[*rdb.FormatError](s.o.Store.CheckFormat(r.Context())); ok {
		return &Error{Status: http.StatusConflict, Code: "format", Message: "nothing was changed: " + unread.Error()}
	}
	s.acted(r, what, about...)
	return nil
}

// acted logs who changes what.
func (s *Server) acted(r *http.Request, what string, about ...zap.Field) {
	who := visitorOf(r).Name
	if who == "" {
		who = "somebody without a login"
	}
	s.log.Info("changed by the dashboard", append([]zap.Field{zap.String("what", what), zap.String("who", wire.Printable(who, maxQuoted)), zap.String("from", r.RemoteAddr)}, about...)...)
}

// body reads the JSON object of a request.
func body(r *http.Request, into any) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return &Error{Status: http.StatusUnsupportedMediaType, Code: "usage", Message: "the Content-Type has to be application/json, and is " + quoted(r.Header.Get("Content-Type"))}
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return err
		}
		return badRequest("the body is not what is expected: %s", wire.Printable(err.Error(), maxQuoted))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("something follows the object of the body")
	}
	return nil
}

func outcome(changed bool, yes, no string) did {
	if changed {
		return did{Outcome: yes}
	}
	return did{Outcome: no}
}

func counted(what string, n int64) did { return did{Outcome: what, Count: &n} }

func (s *Server) pauseQueue(r *http.Request) (any, error) {
	queue := named(r, "queue")
	s.acted(r, "pause a queue", zap.String("queue", queue))
	changed, err := s.o.Store.Pause(r.Context(), queue)
	return outcome(changed, "paused", "was_paused"), err
}

func (s *Server) resumeQueue(r *http.Request) (any, error) {
	queue := named(r, "queue")
	s.acted(r, "resume a queue", zap.String("queue", queue))
	changed, err := s.o.Store.Resume(r.Context(), queue)
	if err != nil || changed {
		return did{Outcome: "resumed"}, err
	}
	if _, all, err := s.o.Store.Paused(r.Context()); err != nil || all {
		return did{Outcome: "all_paused"}, err
	}
	return did{Outcome: "was_not_paused"}, nil
}

func (s *Server) pauseAll(r *http.Request) (any, error) {
	s.acted(r, "pause all queues")
	changed, err := s.o.Store.PauseAll(r.Context())
	return outcome(changed, "paused", "was_paused"), err
}

func (s *Server) resumeAll(r *http.Request) (any, error) {
	s.acted(r, "resume all queues")
	changed, err := s.o.Store.ResumeAll(r.Context())
	return outcome(changed, "resumed", "was_not_paused"), err
}

func (s *Server) purgeQueue(r *http.Request) (any, error) {
	queue := named(r, "queue")
	if err := s.acting(r, "purge a queue", zap.String("queue", queue)); err != nil {
		return nil, err
	}
	n, err := s.o.Jobs.PurgeQueue(r.Context(), queue)
	return counted("purged", n), err
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
	if len(job.Args) > 0 && json.Unmarshal(job.Args, &args) != nil {
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
	s.acted(r, "enqueue a job", zap.String("class", job.Class), zap.String("queue", job.Queue))
	done, err := s.o.Jobs.EnqueueRaw(r.Context(), payload, how...)
	if err != nil && !rdb.Unreachable(err) && rdb.Refusal(err) == "" {
		return nil, badRequest("%s", wire.Printable(err.Error(), maxQuoted))
	}
	return struct {
		Queue   string `json:"queue"`
		Outcome string `json:"outcome"`
	}{done.Queue, string(done.Status)}, err
}

func (s *Server) killJob(r *http.Request) (any, error) {
	v, err := s.findJob(r.Context(), named(r, "id"))
	if err != nil {
		return nil, err
	}
	if v.State == view.JobForeign {
		return nil, &Error{Status: http.StatusConflict, Code: "foreign", Message: "the job runs in a worker that is not resqued's: only its own program can kill it"}
	}
	if err := s.acting(r, "kill a job", zap.String("job", v.ID), zap.String("class", v.Class)); err != nil {
		return nil, err
	}
	said, err := s.o.Store.RequestKill(r.Context(), v.Run, store.KillRequest{Grace: killGrace})
	return did{Outcome: said}, err
}

// pick names failures, one by one or by a filter.
type pick struct {
	IDs    []string `json:"ids"`
	Filter *struct {
		Class string `json:"class"`
		Queue string `json:"queue"`
		Error string `json:"error"`
		All   bool   `json:"all"`
	} `json:"filter"`
	// Again: also those that were retried before.
	Again bool `json:"again"`
	// DryRun: only count them. Expect: refuse if there are more than that.
	DryRun bool   `json:"dry_run"`
	Expect *int64 `json:"expect"`
}

func (s *Server) editFailed(r *http.Request, what string, do func(ctx context.Context, f client.FailedFilter) (client.FailedReport, error)) (any, error) {
	var p pick
	if err := body(r, &p); err != nil {
		return nil, err
	}
	f := client.FailedFilter{IDs: p.IDs, Again: p.Again}
	switch {
	case (len(p.IDs) > 0) == (p.Filter != nil):
		return nil, badRequest("name failures by ids, or select them by filter")
	case p.Filter != nil:
		f.All, f.Class, f.Queue, f.Error = p.Filter.All, p.Filter.Class, p.Filter.Queue, p.Filter.Error
		if f.All == (f.Class+f.Queue+f.Error != "") {
			return nil, badRequest("filter needs class, queue or error, or all: true")
		}
	}
	if p.DryRun || p.Expect != nil {
		found, err := s.o.Jobs.CountFailed(r.Context(), f, what == "removed")
		if err != nil || p.DryRun {
			return counted("would_be_"+what, int64(found.Matched)), err
		}
		if int64(found.Matched) > *p.Expect {
			return nil, &Error{Status: http.StatusConflict, Code: "changed", Message: "there are " + view.Plural(found.Matched, "failure") + " by now", Hint: "Look again."}
		}
	}
	if err := s.acting(r, what+" failures", zap.Strings("ids", p.IDs), zap.String("class", f.Class), zap.String("queue", f.Queue), zap.String("error", f.Error), zap.Bool("all", f.All)); err != nil {
		return nil, err
	}
	// Who stops waiting has not said that the rest should be left.
	report, err := do(context.WithoutCancel(r.Context()), f)
	return struct {
		did
		Matched int `json:"matched"`
	}{counted(what, int64(report.Done)), report.Matched}, err
}

func (s *Server) retryFailed(r *http.Request) (any, error) {
	return s.editFailed(r, "retried", s.o.Jobs.RetryFailed)
}

func (s *Server) removeFailed(r *http.Request) (any, error) {
	return s.editFailed(r, "removed", s.o.Jobs.RemoveFailed)
}

func (s *Server) releaseLock(r *http.Request) (any, error) {
	v, err := view.FindLock(r.Context(), s.o.Store, named(r, "key"))
	if err != nil {
		return nil, err
	}
	if err := s.acting(r, "release a lock", zap.String("lock", v.Key)); err != nil {
		return nil, err
	}
	said, found, err := s.o.Store.RemoveLock(r.Context(), v.Info, false)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, &Error{Status: http.StatusNotFound, Code: "not_found", Message: "the lock is gone by now"}
	case said == store.LockReleased:
		return did{Outcome: said}, nil
	case said == store.LockChanged:
		return nil, &Error{Status: http.StatusConflict, Code: said, Message: "the lock has another holder by now", Hint: "Look again."}
	}
	return nil, &Error{Status: http.StatusConflict, Code: "held", Message: "a living job holds the lock", Hint: "Kill the job; or, if two may run at the same time: resqued locks release --force " + view.Shell(v.Key)}
}

func (s *Server) requeueLong(r *http.Request) (any, error) {
	return s.editLong(r, "requeued", func(ctx context.Context, uuid string) error { return s.o.Long(ctx).Requeue(ctx, uuid) })
}

func (s *Server) cancelLong(r *http.Request) (any, error) {
	return s.editLong(r, "cancelled", func(ctx context.Context, uuid string) error { return s.o.Long(ctx).Cancel(ctx, uuid) })
}

func (s *Server) editLong(r *http.Request, what string, do func(ctx context.Context, uuid string) error) (any, error) {
	run, err := view.FindLongJob(r.Context(), s.o.Long(r.Context()), named(r, "uuid"))
	if err != nil {
		return nil, err
	}
	if err := s.acting(r, what+" a long job", zap.String("uuid", run.UUID), zap.String("class", run.Class)); err != nil {
		return nil, err
	}
	if err := do(r.Context(), run.UUID); err != nil {
		if rdb.Unreachable(err) || rdb.Refusal(err) != "" {
			return nil, err
		}
		return nil, &Error{Status: http.StatusConflict, Code: "state", Message: wire.Printable(err.Error(), maxQuoted)}
	}
	return did{Outcome: what}, nil
}

func (s *Server) runSchedule(r *http.Request) (any, error) {
	all, _, err := view.Schedules(r.Context(), s.o.Store, s.o.Checks.Schedules)
	if err != nil {
		return nil, err
	}
	found, err := view.FindSchedules(all, []string{named(r, "name")})
	if err != nil {
		return nil, err
	}
	v := found[0]
	if v.Class == "" || v.Queue == "" {
		return nil, &Error{Status: http.StatusConflict, Code: "invalid", Message: "the schedule cannot run: " + wire.Printable(v.Invalid, maxQuoted)}
	}
	payload, err := wire.EncodePayload(v.Class, v.Args)
	if err != nil {
		return nil, err
	}
	if err := s.acting(r, "run a schedule", zap.String("schedule", v.Name), zap.String("class", v.Class)); err != nil {
		return nil, err
	}
	done, err := s.o.Jobs.EnqueueRaw(r.Context(), payload, client.Queue(v.Queue))
	return did{Outcome: string(done.Status)}, err
}
