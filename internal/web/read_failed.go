package web

import (
	"net/http"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
)

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
	c := q.conditions(filter.Failures)
	limit, before := q.number("limit", pageSize, 1, pageMost), q.failurePlace()
	if q.err != nil {
		return nil, q.err
	}
	step := view.FailureStep{Before: before, Match: c.record(), Limit: int(limit), Time: searchTime}
	end, err := s.searching(r.Context(), c.Any())
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
	}{list{Items: page.Failures, Next: next, Partial: page.Left > 0 && (c.Any() || next == nil)}, page.Looked, page.Total}, nil
}

func (s *Server) failedGroups(r *http.Request) (any, error) {
	q := &query{Request: r}
	c := q.conditions(filter.Failures)
	if q.err != nil {
		return nil, q.err
	}
	var groups view.FailureGroups
	var err error
	if c.Any() {
		end, busy := s.searching(r.Context(), true)
		if busy != nil {
			return nil, busy
		}
		defer end()
		groups, err = view.GroupFailures(r.Context(), s.o.Store, view.FailureQuery{Limit: searched, Match: c.record(), Time: searchTime})
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
