package web

import (
	"context"
	"html/template"
	"net/http"
	"time"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
)

func (s *Server) failedPage(r *http.Request) (pages.Page, error) {
	f := s.frame(r, "failed", "Failed")
	s.sampled(r.Context(), &f)
	p := &pages.Failed{Frame: f, Flat: r.URL.Query().Get("view") == "flat"}
	q := &query{Request: r}
	c := q.conditions(filter.Failures)
	if q.err != nil {
		return nil, q.err
	}
	p.Filter = c.Filter
	p.Total = part(s, r, "total", s.o.Store.FailureCount).Data // the page's parts say why it is missing
	match := c.record()
	if !p.Flat {
		p.Groups = part(s, r, "groups", func(ctx context.Context) (view.FailureGroups, error) {
			end, err := s.searching(ctx, match != nil)
			if err != nil {
				return view.FailureGroups{}, err
			}
			defer end()
			if match == nil {
				kept := s.grouped(ctx)
				return kept.Data.First(groupsShown), kept.Err
			}
			some, err := view.GroupFailures(ctx, s.o.Store, view.FailureQuery{Limit: grouped, Match: match, Time: searchTime})
			return some.First(groupsShown), err
		})
		p.Parked = part(s, r, "parked", func(ctx context.Context) ([]*view.ParkedJob, error) {
			parked, _, err := view.ParkedJobs(ctx, s.o.Store, pageSize)
			return parked, err
		})
		return p, nil
	}
	before := q.failurePlace()
	if q.err != nil {
		return nil, q.err
	}
	read := part(s, r, "rows", func(ctx context.Context) (view.FailurePage, error) {
		end, err := s.searching(ctx, match != nil)
		if err != nil {
			return view.FailurePage{}, err
		}
		defer end()
		return view.FailuresBefore(ctx, s.o.Store, view.FailureStep{Before: before, Match: match, Limit: pageSize, Time: searchTime})
	})
	found := read.Data
	if p.Rows = pages.Made(found.Failures, read); !p.Rows.OK {
		return p, nil
	}
	var next template.URL
	if found.Next.Before > 0 {
		next = p.Flatly("cursor", found.Next.String())
	}
	if match == nil {
		if next != "" || before.Before > 0 || found.Left > 0 {
			p.Pager.Text = view.Grouped(found.Total) + " in all"
			if next == "" && found.Left > 0 {
				p.Pager.Text = "The newest of " + view.Grouped(found.Total) + "; a search finds the others"
			}
			p.Pager.Next = next
		}
		if before.Before > 0 {
			p.Pager.First = p.Flatly()
		}
		return p, nil
	}
	p.Search = &pages.Search{Scanned: max(0, found.Total-found.Left), Total: found.Total, Found: len(found.Failures), Next: next}
	return p, nil
}

// grouped is how many of the newest failures a page groups, groupsShown how many groups it shows.
const grouped, groupsShown = 20_000, 60

func (s *Server) grouped(ctx context.Context) pages.Widget[view.FailureGroups] {
	ctx = s.forAll(ctx)
	select {
	case s.groups.turn <- struct{}{}:
		defer func() { <-s.groups.turn }()
	case <-ctx.Done():
		return pages.Widget[view.FailureGroups]{Err: ctx.Err()}
	}
	query := view.FailureQuery{Limit: grouped}
	c := &s.groups
	if age := time.Since(c.part.At); c.part.Err != nil || c.whole || age > groupsOld || s.sampler.changedSince(c.part.At) {
		query.Time = groupTime
		begun := time.Now()
		data, err := view.GroupFailures(ctx, s.o.Store, query)
		c.part.Take(data, err)
		c.part.At = begun
		c.whole, c.next = time.Since(begun) < groupTime, time.Time{}
	}
	if c.part.Err == nil && !c.whole && !c.busy && time.Now().After(c.next) {
		c.busy = s.beside.run(s.groupMore)
	}
	return c.part
}

// groupMore groups as many failures as are shown, in the background.
func (s *Server) groupMore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(s.forAll(ctx), sampleTimeout)
	defer cancel()
	begun := time.Now()
	data, err := func() (data view.FailureGroups, err error) {
		defer s.beside.caught(&err)
		return view.GroupFailures(ctx, s.o.Store, view.FailureQuery{Limit: grouped})
	}()
	s.groups.turn <- struct{}{}
	defer func() { <-s.groups.turn }()
	s.groups.part.Take(data, err)
	s.groups.part.At, s.groups.busy, s.groups.next = begun, false, time.Now().Add(modest*time.Since(begun)/4)
}

func (s *Server) failurePage(r *http.Request) (pages.Page, error) {
	id := named(r, "id")
	f := s.frame(r, "failed", "Failure")
	s.sampled(r.Context(), &f)
	one, err := found(s, r, "failure", func(ctx context.Context) (view.Failure, error) {
		found, err := view.FindFailures(ctx, s.o.Store, []string{id})
		if err != nil {
			return view.Failure{}, err
		}
		return found[0], nil
	})
	if err != nil {
		return nil, err
	}
	f.Title = one.Data.Class
	return &pages.Failure{Frame: f, ID: id, Failure: one}, nil
}
