package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// Error is an answer that is no success.
type Error struct {
	Status int `json:"-"`
	// Code names the kind of error for programs.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Hint says what to do.
	Hint string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// maxQuoted bounds what of a request is repeated in an answer.
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
	e := &Error{Status: http.StatusInternalServerError, Code: "failed", Message: view.Mask(err.Error())}
	switch {
	case rdb.Unreachable(err), errors.Is(err, context.DeadlineExceeded):
		e.Status, e.Code, e.Hint = http.StatusServiceUnavailable, "unreachable", "Redis does not answer. What is shown is as old as it says."
	case rdb.Unauthorized(err):
		e.Status, e.Code = http.StatusServiceUnavailable, "unauthorized"
	case rdb.Refusal(err) != "":
		e.Status, e.Code = http.StatusServiceUnavailable, "refused"
		if rdb.Refusal(err) == "NOPERM" {
			e.Hint = "Its user lacks rights: docs/redis-keys.md lists those that it needs."
		}
	}
	return e
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // nobody waits for it
	}
	e := asError(err)
	if e.Status == http.StatusInternalServerError {
		s.log.Error("a request failed", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Error(err))
	}
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="resqued", charset="UTF-8"`)
	}
	if s.forPeople(r) {
		s.failPage(w, r, e)
		return
	}
	s.send(w, e.Status, struct {
		Error *Error `json:"error"`
	}{e})
}

// send writes JSON.
func (s *Server) send(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil { // arguments that are no JSON are escaped by the views
		s.log.Error("an answer cannot be written as JSON", zap.Error(err))
		status, text = http.StatusInternalServerError, []byte(`{"error":{"code":"failed","message":"the answer cannot be written as JSON: see the log"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
