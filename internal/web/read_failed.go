package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/view"
)

// failedFilter reads the filter for failures; filtered reports whether it excludes any.
func (q *query) failedFilter() (f client.FailedFilter, args string, filtered bool) {
	args = q.text("args")
	f.Class, f.Error, f.Queue = q.text("class"), q.text("error"), q.text("queue")
	f.All = f.Class+f.Queue+f.Error == ""
	return f, args, !f.All || args != ""
}

// matcher returns a filter for records. It searches the bytes first, before parsing.
func matcher(ctx context.Context, f client.FailedFilter, args string) func(record []byte) bool {
	needles, plainly := []string{}, []string{f.Class, f.Queue, f.Error}
	if !view.Rules(ctx).Any() { // else response times would reveal what is hidden
		plainly = append(plainly, args)
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
		if !f.Matches(record) {
			return false
		}
		return args == "" || view.HasArgs(ctx, record, args)
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
	f, args, filtered := q.failedFilter()
	limit, before := q.number("limit", pageSize, 1, pageMost), q.failurePlace()
	if q.err != nil {
		return nil, q.err
	}
	step := view.FailureStep{Before: before, Limit: int(limit), Time: searchTime}
	if filtered {
		step.Match = matcher(r.Context(), f, args)
	}
	end, err := s.searching(r.Context(), filtered)
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
	}{list{Items: page.Failures, Next: next, Partial: page.Left > 0 && (filtered || next == nil)}, page.Looked, page.Total}, nil
}

func (s *Server) failedGroups(r *http.Request) (any, error) {
	q := &query{Request: r}
	f, args, filtered := q.failedFilter()
	if q.err != nil {
		return nil, q.err
	}
	var groups view.FailureGroups
	var err error
	if filtered {
		end, busy := s.searching(r.Context(), true)
		if busy != nil {
			return nil, busy
		}
		defer end()
		groups, err = view.GroupFailures(r.Context(), s.o.Store, view.FailureQuery{Limit: searched, Match: matcher(r.Context(), f, args), Time: searchTime})
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
