package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// Error is an error answer.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// maxQuoted limits how much of a request an answer repeats.
const maxQuoted = 200

func quoted(text string) string { return fmt.Sprintf("%q", wire.Printable(text, maxQuoted)) }

func badRequest(format string, a ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "usage", Message: fmt.Sprintf(format, a...)}
}

func notFoundPath(path string) *Error {
	return &Error{Status: http.StatusNotFound, Code: "not_found", Message: "nothing is at " + quoted(path), Hint: "The API is described at /api/v1/openapi.yaml."}
}

// asError returns the answer for any error.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*view.NotFoundError](err); ok {
		return &Error{Status: http.StatusNotFound, Code: "not_found", Message: fmt.Sprintf("no %s %s", e.Kind, quoted(e.Name))}
	}
	if e, ok := errors.AsType[*view.AmbiguousError](err); ok {
		return &Error{Status: http.StatusConflict, Code: "ambiguous", Message: fmt.Sprintf("%s is the beginning of several: %s", quoted(e.Name), view.Plural(len(e.Matches), e.Kind)), Hint: "Write more of it."}
	}
	if e, ok := errors.AsType[*view.AmbiguousJobError](err); ok {
		return &Error{Status: http.StatusConflict, Code: "ambiguous", Message: wire.Printable(e.Error(), maxQuoted), Hint: "Write more of it."}
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "usage", Message: fmt.Sprintf("the body has more than %d bytes", e.Limit)}
	}
	e := &Error{Status: http.StatusInternalServerError, Code: "failed", Message: filter.Mask(err.Error())}
	switch {
	case errors.Is(err, client.ErrNoFilter):
		e.Status, e.Code = http.StatusBadRequest, "usage"
	case errors.Is(err, store.ErrFailuresMoved):
		e.Status, e.Code = http.StatusConflict, "changed"
	case errors.Is(err, store.ErrSifting):
		e.Status, e.Code = http.StatusConflict, "busy"
	case rdb.Unreachable(err), errors.Is(err, context.DeadlineExceeded):
		e.Message = strings.ReplaceAll(e.Message, context.DeadlineExceeded.Error(), "no answer in time")
		e.Status, e.Code, e.Hint = http.StatusServiceUnavailable, "unreachable", awayHint
	case rdb.Unauthorized(err):
		e.Status, e.Code, e.Hint = http.StatusServiceUnavailable, "unauthorized", refusedHints["NOAUTH"]
	case rdb.Refusal(err) != "":
		e.Status, e.Code, e.Hint = http.StatusServiceUnavailable, "refused", refusedHints[rdb.Refusal(err)]
	case wrongType(err):
		e.Message = view.Plainly(e.Message)
		e.Hint = "A key of Redis holds something else than it should: see redis-cli TYPE, and move it away with RENAME."
	}
	return e
}

const awayHint = "Redis does not answer. The page shows how old its figures are."

var refusedHints = map[string]string{
	"NOPERM":     "Its user lacks rights: docs/redis-keys.md lists those that it needs.",
	"NOAUTH":     "Redis wants another password than the configuration has: correct redis_url, and start this server again.",
	"READONLY":   "That server is a replica: name the primary in redis_url, or wait until the failover is over.",
	"MASTERDOWN": "That server is a replica without its primary: name the primary in redis_url, or wait until the failover is over.",
	"OOM":        "Redis is full: raise its maxmemory, or let jobs be worked. Removing still works.",
	"BUSY":       "A script keeps Redis busy: wait, or end it with redis-cli SCRIPT KILL.",
	"LOADING":    "Redis has just started and reads its data: wait.",
	"MISCONF":    "Redis cannot save its data: see its log, its disk may be full.",
	"NOREPLICAS": "Redis has too few replicas to take changes (min-replicas-to-write): look at them.",
}

// partError is why a change stopped after n things.
type partError struct {
	error
	n int
}

func (e *partError) Unwrap() error { return e.error }

// partly adds to an error how many things were changed before it.
func partly(err error, n int) error {
	if err == nil || n == 0 {
		return err
	}
	return &partError{err, n}
}

// actError is asError for changes. It says what was changed, and what to do before a repetition.
func actError(err error) *Error {
	e := *asError(err)
	part, some := errors.AsType[*partError](err)
	refused := e.Status < http.StatusInternalServerError
	if refused && !some {
		return &e
	}
	known := refused || rdb.Unexecuted(err) || wrongType(err)
	said := "Nothing was changed."
	switch {
	case some && known:
		said = fmt.Sprintf("It was done to %d; the rest is as it was.", part.n)
	case some:
		said = fmt.Sprintf("It was done to %d, and perhaps to one more: look again before you go on.", part.n)
	case !known:
		said = "It may have been done anyway: look again before you repeat it."
	}
	if e.Hint == awayHint {
		e.Hint = "Redis does not answer."
	}
	e.Hint = strings.TrimSpace(said + " " + e.Hint)
	return &e
}

// wrongType reports whether a command did nothing because a key has another type.
func wrongType(err error) bool {
	return rdb.WrongType(err) || strings.HasPrefix(rdb.Reply(err), "WRONGTYPE")
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client has gone
	}
	e := asError(err)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		e = actError(err)
	}
	if e.Status == http.StatusInternalServerError {
		s.log.Error("a request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="resqued", charset="UTF-8"`)
	}
	if s.forPeople(r) {
		s.failPage(w, r, e)
		return
	}
	s.send(w, r, e.Status, struct {
		Error *Error `json:"error"`
	}{e})
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil { // views escape arguments that are not JSON
		s.log.Error("an answer cannot be written as JSON", slog.Any("error", err))
		status, text = http.StatusInternalServerError, []byte(`{"error":{"code":"failed","message":"the answer cannot be written as JSON: see the log"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	write(w, r, status, append(text, '\n'))
}
