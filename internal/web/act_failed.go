package web

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// leastID is the minimum length of a failure's id before its place: shorter ones match too many.
const leastID = 8

func checkFailureIDs(ids []string) error {
	if slices.ContainsFunc(ids, func(id string) bool { return len(store.ParseFailureRef(id).Digest) < leastID }) {
		return badRequest("an id has at least %d characters", leastID)
	}
	return nil
}

type pick struct {
	IDs    []string `json:"ids"`
	Filter *struct {
		Class string `json:"class"`
		Queue string `json:"queue"`
		Error string `json:"error"`
		All   bool   `json:"all"`
	} `json:"filter"`
	// Again includes failures that were retried before.
	Again bool `json:"again"`
	// DryRun only counts them. Expect refuses if there are more.
	DryRun bool   `json:"dry_run"`
	Expect *int64 `json:"expect"`
	// Background answers at once with the id of an operation.
	Background bool `json:"background"`
}

func (s *Server) editFailed(r *http.Request, what string) (any, error) {
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
	// Exactly the counted failures are changed, not those that come later.
	selection, err := s.o.Jobs.SelectFailed(r.Context(), f, what == "removed")
	if err != nil {
		return nil, err
	}
	found := selection.Report().Matched
	if p.DryRun {
		return counted("would_be_"+what, int64(found)), nil
	}
	if p.Expect != nil && int64(found) > *p.Expect {
		return nil, &Error{Status: http.StatusConflict, Code: "changed", Message: "there are " + view.Plural(found, "failure") + " by now", Hint: "Look again."}
	}
	if err := s.actingOn(r, what, f); err != nil {
		return nil, err
	}
	if p.Background {
		id, err := s.editMany(r, what+" failures", what, f, selection, "")
		return struct {
			did
			Operation string `json:"operation"`
		}{did{Outcome: "begun"}, id}, err
	}
	report, err := s.editSelected(r, what, f, selection)
	return struct {
		did
		Matched int `json:"matched"`
	}{counted(what, int64(report.Done)), report.Matched}, err
}

// actingOn is acting for failures.
func (s *Server) actingOn(r *http.Request, what string, f client.FailedFilter) error {
	return s.acting(r, what+" failures", slog.Any("ids", f.IDs), slog.String("class", f.Class), slog.String("queue", f.Queue), slog.String("error", f.Error), slog.Bool("all", f.All))
}

// editSelected retries or removes failures. A visitor that goes away has not cancelled the rest.
func (s *Server) editSelected(r *http.Request, what string, f client.FailedFilter, selection *client.FailedSelection) (client.FailedReport, error) {
	report, err := selection.Do(context.WithoutCancel(r.Context()), nil)
	s.notedEdit(r, what, f, report)
	return report, partly(err, report.Done)
}

func (s *Server) notedEdit(r *http.Request, what string, f client.FailedFilter, report client.FailedReport) {
	s.noted(r, store.EventKind(what), "failures", view.Plural(report.Done, "failure")+selected(f), int64(report.Done))
}

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
	return s.editFailed(r, "retried")
}

func (s *Server) removeFailed(r *http.Request) (any, error) {
	return s.editFailed(r, "removed")
}
