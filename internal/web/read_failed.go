package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

// failedFilter reads the filter for failures.
func (q *query) failedFilter() (f pages.FailedFilter) {
	f.Args, f.Class, f.Error, f.Queue = q.text("args"), q.text("class"), q.text("error"), q.text("queue")
	return f
}

// matcher returns a filter for records, nil for all. It searches the bytes first, before parsing.
func matcher(ctx context.Context, f pages.FailedFilter) func(record []byte) bool {
	if !f.Any() {
		return nil
	}
	records := f.Records()
	needles, plainly := []string{}, []string{f.Class, f.Queue, f.Error}
	if !view.Rules(ctx).Any() { // else response times would reveal what is hidden
		plainly = append(plainly, f.Args)
	}
	for _, v := range plainly {
		if plain(v) {
			needles = append(needles, v)
		}
	}
	return func(record []byte) bool {
		for _, n := range needles {
			if !strings.Contains(string(record), n) {
				return false
			}
		}
		if !records.Matches(record) {
			return false
		}
		return f.Args == "" || view.HasArgs(ctx, record, f.Args)
	}
}

// plain reports whether a text looks the same in JSON from any encoder.
func plain(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || strings.IndexByte(`"\<>&/'`, c) >= 0 {
			return false
		}
	}
	return text != ""
}

func (q *query) failurePlace() view.FailurePlace {
	text := q.text("cursor")
	place, err := view.ParseFailurePlace(text)
	if err != nil {
		q.wrong("cursor is %s: %s", quoted(text), err)
	}
	return place
}

func (s *Server) failed(r *http.Request) (any, error) {
	q := &query{Request: r}
	f := q.failedFilter()
	limit, before := q.number("limit", pageSize, 1, pageMost), q.failurePlace()
	if q.err != nil {
		return nil, q.err
	}
	step := view.FailureStep{Before: before, Match: matcher(r.Context(), f), Limit: int(limit), Time: searchTime}
	end, err := s.searching(r.Context(), f.Any())
	if err != nil {
		return nil, err
	}
	defer end()
	page, err := view.FailuresBefore(r.Context(), s.o.Store, step)
	if err != nil {
		return nil, err
	}
	var next *string
	if page.Next.Before > 0 {
		next = new(page.Next.String())
	}
	return struct {
		list
		// Looked is how many records of Total this step has read.
		Looked int64 `json:"looked"`
		Total  int64 `json:"total"`
	}{list{Items: page.Failures, Next: next, Partial: page.Left > 0 && (f.Any() || next == nil)}, page.Looked, page.Total}, nil
}

func (s *Server) failedGroups(r *http.Request) (any, error) {
	q := &query{Request: r}
	f := q.failedFilter()
	if q.err != nil {
		return nil, q.err
	}
	var groups view.FailureGroups
	var err error
	if f.Any() {
		end, busy := s.searching(r.Context(), true)
		if busy != nil {
			return nil, busy
		}
		defer end()
		groups, err = view.GroupFailures(r.Context(), s.o.Store, view.FailureQuery{Limit: searched, Match: matcher(r.Context(), f), Time: searchTime})
	} else {
		part := s.grouped(r.Context())
		groups, err = part.Data, part.Err
	}
	return list{Items: some(groups.Groups), Partial: groups.Partial || groups.Others > 0}, err
}

func (s *Server) failure(r *http.Request) (any, error) {
	found, err := view.FindFailures(r.Context(), s.o.Store, []string{named(r, "id")})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func (s *Server) parked(r *http.Request) (any, error) {
	found, total, err := view.ParkedJobs(r.Context(), s.o.Store, pageMost)
	return list{Items: some(found), Partial: int64(len(found)) < total}, err
}
