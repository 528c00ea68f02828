package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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

// noteTime bounds how long an act waits until it is among the events.
const noteTime = 2 * time.Second

// noted writes among the events what somebody has done to n things; without any nothing was done.
// What cannot be written is only missing there: it was done all the same.
func (s *Server) noted(r *http.Request, kind store.EventKind, subject, text string, n int64) {
	if n <= 0 {
		return
	}
	by := visitorOf(r).Name
	if by == "" {
		by = "somebody without a login"
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		by += "@" + host
	}
	s.note(r.Context(), store.Event{Kind: kind, By: by, Via: "web", Subject: subject, Text: text, Count: n})
}

func (s *Server) note(ctx context.Context, e store.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	if err := s.o.Store.NoteEvent(ctx, e); err != nil {
		s.log.Warn("an act is missing among the events", zap.String("kind", string(e.Kind)), zap.String("subject", wire.Printable(e.Subject, maxQuoted)), zap.Error(err))
	}
}

// done is 1 for an act that has changed something.
func done(changed bool) int64 {
	if changed {
		return 1
	}
	return 0
}

// body reads the JSON object of a request.
func body(r *http.Request, into any) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return &Error{Status: http.StatusUnsupportedMediaType, Code: "usage", Message: "the Content-Type has to be application/json, and is " + quoted(r.Header.Get("Content-Type"))}
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if !utf8.Valid(text) { // the decoder would put other signs in its place, and so change names
		return badRequest("the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
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
	s.noted(r, store.EventPaused, "queue "+queue, "", done(changed))
	return outcome(changed, "paused", "was_paused"), err
}

func (s *Server) resumeQueue(r *http.Request) (any, error) {
	queue := named(r, "queue")
	s.acted(r, "resume a queue", zap.String("queue", queue))
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

func (s *Server) pauseAll(r *http.Request) (any, error) {
	s.acted(r, "pause all queues")
	changed, err := s.o.Store.PauseAll(r.Context())
	s.noted(r, store.EventPaused, "all queues", "", done(changed))
	return outcome(changed, "paused", "was_paused"), err
}

func (s *Server) resumeAll(r *http.Request) (any, error) {
	s.acted(r, "resume all queues")
	changed, err := s.o.Store.ResumeAll(r.Context())
	s.noted(r, store.EventResumed, "all queues", "", done(changed))
	return outcome(changed, "resumed", "was_not_paused"), err
}

func (s *Server) purgeQueue(r *http.Request) (any, error) {
	queue := named(r, "queue")
	if err := s.acting(r, "purge a queue", zap.String("queue", queue)); err != nil {
		return nil, err
	}
	n, err := s.o.Jobs.PurgeQueue(r.Context(), queue)
	s.noted(r, store.EventPurged, "queue "+queue, view.Plural(int(n), "waiting job"), n)
	return counted("purged", n), err
}

func (s *Server) removeQueue(r *http.Request) (any, error) {
	queue := named(r, "queue")
	if err := s.acting(r, "remove a queue", zap.String("queue", queue)); err != nil {
		return nil, err
	}
	n, err := s.o.Jobs.RemoveQueue(r.Context(), queue)
	s.noted(r, store.EventRemoved, "queue "+queue, "with "+view.Plural(int(n), "job"), max(n, done(err == nil)))
	return counted("removed", n), err
}

func (s *Server) repairQueue(r *http.Request) (any, error) {
	queue := named(r, "queue")
	if err := s.acting(r, "repair a queue", zap.String("queue", queue)); err != nil {
		return nil, err
	}
	report, err := s.o.Store.RepairUnique(r.Context(), queue)
	if err != nil {
		return nil, err
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
	s.acted(r, "enqueue a job", zap.String("class", job.Class), zap.String("queue", job.Queue))
	pushed, err := s.o.Jobs.EnqueueRaw(r.Context(), payload, how...)
	if err != nil && !rdb.Unreachable(err) && rdb.Refusal(err) == "" {
		return nil, badRequest("%s", wire.Printable(err.Error(), maxQuoted))
	}
	return struct {
		Queue   string `json:"queue"`
		Outcome string `json:"outcome"`
	}{pushed.Queue, string(pushed.Status)}, err
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
	s.notedKill(r, []*view.Job{v}, done(err == nil && said != store.KillGone))
	return did{Outcome: said}, err
}

// notedKill notes that running jobs were told to stop.
func (s *Server) notedKill(r *http.Request, jobs []*view.Job, n int64) {
	const shown = 5
	var names []string
	for i, j := range jobs {
		if i == shown {
			names = append(names, fmt.Sprintf("and %d more", len(jobs)-i))
			break
		}
		names = append(names, j.Class+" ("+j.ID+")")
	}
	s.noted(r, store.EventKilled, "jobs", strings.Join(names, ", "), n)
}

// leastID is how many characters an id of a failure has at least before its place: a shorter one
// fits too many.
const leastID = 8

func checkFailureIDs(ids []string) error {
	if slices.ContainsFunc(ids, func(id string) bool { return len(store.ParseFailureRef(id).Digest) < leastID }) {
		return badRequest("an id has at least %d characters", leastID)
	}
	return nil
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
	// Background: do not wait for its end, but answer with the id of an operation.
	Background bool `json:"background"`
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
	case checkFailureIDs(p.IDs) != nil:
		return nil, checkFailureIDs(p.IDs)
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
	if p.Background {
		found, err := s.o.Jobs.CountFailed(r.Context(), f, what == "removed")
		if err != nil {
			return nil, err
		}
		id, err := s.editMany(r, what+" failures", what, f, int64(found.Matched), "")
		return struct {
			did
			Operation string `json:"operation"`
		}{did{Outcome: "begun"}, id}, err
	}
	// Who stops waiting has not said that the rest should be left.
	report, err := do(context.WithoutCancel(r.Context()), f)
	s.noted(r, failedEvents[what], "failures", view.Plural(report.Done, "failure")+selected(f), int64(report.Done))
	return struct {
		did
		Matched int `json:"matched"`
	}{counted(what, int64(report.Done)), report.Matched}, partly(err, report.Done)
}

// failedEvents are the kinds of events of what is done to failures.
var failedEvents = map[string]store.EventKind{"retried": store.EventRetried, "removed": store.EventRemoved}

// selected says how failures were selected.
func selected(f client.FailedFilter) string {
	var said strings.Builder
	for _, one := range []struct{ name, value string }{{" of class ", f.Class}, {" of queue ", f.Queue}, {" with ", f.Error}} {
		if one.value != "" {
			said.WriteString(one.name + wire.Printable(one.value, view.MaxName))
		}
	}
	return said.String()
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
		s.noted(r, store.EventReleased, "lock "+v.Key, "its state was: "+string(v.State), 1)
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
	s.noted(r, store.EventKind(what), "long job "+run.UUID, run.Class, 1)
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
	payload, err := wire.EncodePayload(v.Class, v.Pushed())
	if err != nil {
		return nil, err
	}
	if err := s.acting(r, "run a schedule", zap.String("schedule", v.Name), zap.String("class", v.Class)); err != nil {
		return nil, err
	}
	enqueued, err := s.o.Jobs.EnqueueRaw(r.Context(), payload, client.Queue(v.Queue))
	s.noted(r, store.EventRan, "schedule "+v.Name, v.Class, done(err == nil))
	return did{Outcome: string(enqueued.Status)}, err
}

// order tells a daemon to do something.
func (s *Server) order(r *http.Request) (any, error) {
	verb := store.Verb(r.PathValue("order"))
	switch verb {
	case store.OrderPause, store.OrderResume, store.OrderDrain, store.OrderRecycle:
	default:
		return nil, notFoundPath(r.URL.Path)
	}
	return did{Outcome: "asked"}, s.orderWorker(r, named(r, "worker"), verb)
}

func (s *Server) orderWorker(r *http.Request, name string, verb store.Verb) error {
	masters, err := view.Masters(r.Context(), s.o.Store)
	if err != nil {
		return err
	}
	ordered, err := view.FindOrdered(r.Context(), s.o.Store, masters, []string{name})
	if err != nil {
		if _, ok := errors.AsType[*view.NotOursError](err); ok {
			return &Error{Status: http.StatusConflict, Code: "foreign", Message: wire.Printable(err.Error(), maxQuoted)}
		}
		return err
	}
	if err := s.acting(r, string(verb)+" a daemon", zap.String("worker", name)); err != nil {
		return err
	}
	for _, o := range ordered {
		_, said, err := s.o.Store.RequestOrder(r.Context(), o.ID, verb, o.Proc)
		switch {
		case err != nil:
			return err
		case said != store.OrderAsked:
			return &Error{Status: http.StatusConflict, Code: said, Message: "the daemon takes no orders: it has gone, or is of an older version"}
		}
		s.noted(r, store.EventOrdered, cmp.Or(o.Proc, o.Name), string(verb), 1)
	}
	return nil
}

func (s *Server) runDelayed(r *http.Request) (any, error)    { return s.editDelayed(r, true) }
func (s *Server) removeDelayed(r *http.Request) (any, error) { return s.editDelayed(r, false) }

func (s *Server) editDelayed(r *http.Request, run bool) (any, error) {
	var names struct {
		IDs []string `json:"ids"`
	}
	if err := body(r, &names); err != nil {
		return nil, err
	}
	if len(names.IDs) == 0 {
		return nil, badRequest("name delayed jobs by ids")
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
	if err := s.acting(r, what, zap.Strings("ids", ids)); err != nil {
		return 0, err
	}
	// Who stops waiting has not said that the rest should be left.
	err = s.o.Store.Undelay(context.WithoutCancel(r.Context()), jobs, run, s.unique, func(_ store.DelayedJob, what store.FailedOutcome) {
		if what != store.FailedGone && what != store.FailedStuck {
			n++
		}
	})
	s.noted(r, kind, "delayed jobs", view.Plural(int(n), "delayed job"), n)
	return n, err
}

// operation is an act on many records, and how far it has come.
func (s *Server) operation(r *http.Request) (any, error) {
	one, err := s.operations.find(named(r, "id"))
	if err != nil {
		return nil, err
	}
	return one.state(), nil
}

// stopOperation ends one. What it has not come to stays as it was.
func (s *Server) stopOperation(r *http.Request) (any, error) {
	one, err := s.operations.find(named(r, "id"))
	if err != nil {
		return nil, err
	}
	s.acted(r, "stop an act on many records", zap.String("operation", one.what))
	one.cancel()
	return did{Outcome: "asked"}, nil
}
