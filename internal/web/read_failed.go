package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/view"
)

// failedFilter reads the filter for failures; filtered reports whether it excludes any.
func failedFilter(r *http.Request) (f client.FailedFilter, args string, filtered bool, err error) {
	err = texts(r, map[string]*string{"class": &f.Class, "queue": &f.Queue, "error": &f.Error, "args": &args})
	f.All = f.Class+f.Queue+f.Error == ""
	return f, args, !f.All || args != "", err
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

func failurePlace(r *http.Request) (view.FailurePlace, error) {
	var text string
	err := texts(r, map[string]*string{"cursor": &text})
	if err != nil {
		return view.FailurePlace{}, err
	}
	place, err := view.ParseFailurePlace(text)
	if err != nil {
		return place, badRequest("cursor is %s: %s", quoted(text), err)
	}
	return place, nil
}

func (s *Server) failed(r *http.Request) (any, error) {
	f, args, filtered, err := failedFilter(r)
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", pageSize, 1, pageMost)
	if err != nil {
		return nil, err
	}
	before, err := failurePlace(r)
	if err != nil {
		return nil, err
	}
	q := view.FailureStep{Before: before, Limit: int(limit), Time: searchTime}
	if filtered {
		q.Match = matcher(r.Context(), f, args)
	}
	end, err := s.searching(r.Context(), filtered)
	if err != nil {
		return nil, err
	}
	defer end()
	page, err := view.FailuresBefore(r.Context(), s.o.Store, q)
	if err != nil {
		return nil, err
	}
	var next *string
	if page.Next.Before > 0 {
		text := page.Next.String()
		next = &text
	}
	return struct {
		list
		// Looked is how many records of Total this step has read.
		Looked int64 `json:"looked"`
		Total  int64 `json:"total"`
	}{list{Items: page.Failures, Next: next, Partial: page.Left > 0 && (filtered || next == nil)}, page.Looked, page.Total}, nil
}

func (s *Server) failedGroups(r *http.Request) (any, error) {
	f, args, filtered, err := failedFilter(r)
	if err != nil {
		return nil, err
	}
	var groups view.FailureGroups
	if filtered {
		end, err := s.searching(r.Context(), true)
		if err != nil {
			return nil, err
		}
		defer end()
		groups, err = view.GroupFailures(r.Context(), s.o.Store, view.FailureQuery{Limit: searched, Match: matcher(r.Context(), f, args), Time: searchTime})
		if err != nil {
			return nil, err
		}
	} else {
		part := s.grouped(r.Context())
		groups, err = part.Data, part.Err
	}
	if err != nil {
		return nil, err
	}
	if groups.Groups == nil {
		groups.Groups = []*view.FailureGroup{}
	}
	return list{Items: groups.Groups, Partial: groups.Partial || groups.Others > 0}, nil
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
	if err != nil {
		return nil, err
	}
	if found == nil {
		found = []*view.ParkedJob{}
	}
	return list{Items: found, Partial: int64(len(found)) < total}, nil
}
