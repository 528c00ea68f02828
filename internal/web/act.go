package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

// did is the answer to a change.
type did struct {
	// Outcome is the result in a word, Count how many things were changed.
	Outcome string `json:"outcome"`
	Count   *int64 `json:"count,omitempty"`
}

// acting checks that this program may change data in Redis, and logs who changes what.
func (s *Server) acting(r *http.Request, what string, about ...any) error {
	if unread, ok := errors.AsType[*rdb.FormatError](s.o.Store.CheckFormat(r.Context())); ok {
		return &Error{Status: http.StatusConflict, Code: "format", Message: "nothing was changed: " + unread.Error()}
	}
	s.acted(r, what, about...)
	return nil
}

func (s *Server) acted(r *http.Request, what string, about ...any) {
	who := visitorOf(r).Name
	if who == "" {
		who = "someone without a login"
	}
	s.log.Info("changed by the dashboard", append([]any{slog.String("what", what), slog.String("who", wire.Printable(who, maxQuoted)), slog.String("from", r.RemoteAddr)}, about...)...)
}

// noteTime bounds how long a change waits to be recorded as an event.
const noteTime = 2 * time.Second

// noted records as an event what a visitor has done to n things, if any. It ignores errors.
func (s *Server) noted(r *http.Request, kind store.EventKind, subject, text string, n int64) {
	if n <= 0 {
		return
	}
	s.note(r.Context(), store.Event{Kind: kind, By: author(r), Via: "web", Subject: subject, Text: text, Count: n})
}

// author is the visitor and its address: "alice@10.0.0.7".
func author(r *http.Request) string {
	by := cmp.Or(visitorOf(r).Name, "someone without a login")
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		by += "@" + host
	}
	return by
}

func (s *Server) note(ctx context.Context, e store.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	if err := s.o.Store.NoteEvent(ctx, e); err != nil {
		s.log.Warn("an act is missing among the events", slog.String("kind", string(e.Kind)), slog.String("subject", wire.Printable(e.Subject, maxQuoted)), slog.Any("error", err))
	}
}

// done is 1 if something was changed, else 0.
func done(changed bool) int64 {
	if changed {
		return 1
	}
	return 0
}

func body(r *http.Request, into any) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return &Error{Status: http.StatusUnsupportedMediaType, Code: "usage", Message: "the Content-Type has to be application/json, and is " + quoted(r.Header.Get("Content-Type"))}
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if !utf8.Valid(text) { // the decoder would replace the bytes, and so change names
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

func (s *Server) killJob(r *http.Request) (did, error) {
	v, err := s.findJob(r.Context(), named(r, "id"))
	if err != nil {
		return did{}, err
	}
	if v.State == view.JobForeign {
		return did{}, &Error{Status: http.StatusConflict, Code: "foreign", Message: "the job runs in a worker that is not resqued's: only its own program can kill it"}
	}
	said, err := s.kill(r, v)
	s.notedKill(r, []*view.Job{v}, done(err == nil && said != store.KillGone))
	return did{Outcome: said}, err
}

// kill tells a job to stop.
func (s *Server) kill(r *http.Request, v *view.Job) (said string, err error) {
	if err := s.acting(r, "kill a job", slog.String("job", v.ID), slog.String("class", v.Class)); err != nil {
		return "", err
	}
	return s.o.Store.RequestKill(r.Context(), v.Run, store.KillRequest{Grace: store.KillGrace})
}

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

func (s *Server) releaseLock(r *http.Request) (did, error) {
	v, err := view.FindLock(r.Context(), s.o.Store, named(r, "key"))
	if err != nil {
		return did{}, err
	}
	if err := s.acting(r, "release a lock", slog.String("lock", v.Key)); err != nil {
		return did{}, err
	}
	said, found, err := s.o.Store.RemoveLock(r.Context(), v.Info, false)
	switch {
	case err != nil:
		return did{}, err
	case !found:
		return did{}, &Error{Status: http.StatusNotFound, Code: "not_found", Message: "the lock is gone by now"}
	case said == store.LockReleased:
		s.noted(r, store.EventReleased, "lock "+v.Key, "its state was: "+string(v.State), 1)
		return did{Outcome: said}, nil
	case said == store.LockChanged:
		return did{}, &Error{Status: http.StatusConflict, Code: said, Message: "the lock has another holder by now", Hint: "Look again."}
	}
	return did{}, &Error{Status: http.StatusConflict, Code: "held", Message: "a living job holds the lock", Hint: "Kill the job; or, if two may run at the same time: " + s.o.Command + " locks release --force " + view.Shell(v.Key)}
}

// longAct is a change of long jobs.
type longAct struct {
	// did is the outcome, notice the name of what the page says.
	did, notice string
	do          func(c *longjob.Client, ctx context.Context, uuid string) error
}

var longActs = map[string]longAct{
	"requeue": {"requeued", "requeued", (*longjob.Client).Requeue},
	"pause":   {"paused", "halted", ending((*longjob.Client).Pause)},
	"resume":  {"resumed", "requeued", (*longjob.Client).Resume},
	"cancel":  {"cancelled", "cancelled", ending((*longjob.Client).Cancel)},
}

// ending ignores the error that says that the run has ended but a slice is still running.
func ending(do func(c *longjob.Client, ctx context.Context, uuid string) error) func(c *longjob.Client, ctx context.Context, uuid string) error {
	return func(c *longjob.Client, ctx context.Context, uuid string) error {
		if err := do(c, ctx, uuid); !errors.Is(err, longjob.ErrEnding) {
			return err
		}
		return nil
	}
}

// editLong returns the change of longActs with a name.
func editLong(name string) func(s *Server, r *http.Request) (did, error) {
	act := longActs[name]
	return func(s *Server, r *http.Request) (did, error) {
		run, err := view.FindLongJob(r.Context(), s.o.Long(r.Context()), named(r, "uuid"))
		if err != nil {
			return did{}, err
		}
		if err := s.acting(r, act.did+" a long job", slog.String("uuid", run.UUID), slog.String("class", run.Class)); err != nil {
			return did{}, err
		}
		if err := act.do(s.o.Long(r.Context()), r.Context(), run.UUID); err != nil {
			if rdb.Unreachable(err) || rdb.Refusal(err) != "" {
				return did{}, err
			}
			return did{}, &Error{Status: http.StatusConflict, Code: "state", Message: wire.Printable(err.Error(), maxQuoted)}
		}
		s.noted(r, store.EventKind(act.did), "long job "+run.UUID, run.Class, 1)
		return did{Outcome: act.did}, nil
	}
}

func (s *Server) order(r *http.Request) (did, error) {
	return did{Outcome: "asked"}, s.orderWorker(r, r.PathValue("order"), notFoundPath(r.URL.Path))
}

// orderWorker gives an order to the worker of a path; unknown is the error if there is no such order.
func (s *Server) orderWorker(r *http.Request, order string, unknown error) error {
	name, verb := named(r, "worker"), store.Verb(order)
	if !slices.Contains([]store.Verb{store.OrderPause, store.OrderResume, store.OrderDrain, store.OrderRecycle}, verb) {
		return unknown
	}
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
	if err := s.acting(r, string(verb)+" a daemon", slog.String("worker", name)); err != nil {
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

// operation returns the progress of a bulk change.
func (s *Server) operation(r *http.Request) (any, error) {
	one, err := s.operations.find(named(r, "id"))
	if err != nil {
		return nil, err
	}
	return one.state(), nil
}

// stopOperation ends a bulk change. Records that it has not reached stay as they are.
func (s *Server) stopOperation(r *http.Request) (did, error) {
	one, err := s.operations.find(named(r, "id"))
	if err != nil {
		return did{}, err
	}
	s.acted(r, "stop an act on many records", slog.String("operation", one.what))
	one.cancel()
	return did{Outcome: "asked"}, nil
}
