package web

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (s *Server) queues(r *http.Request) (any, error) {
	part := s.sampler.sample(r.Context()).Queues
	some := make([]view.Queue, 0, len(part.Data))
	for _, q := range part.Data {
		brief := *q
		brief.Servers = nil
		some = append(some, brief)
	}
	return listed(part, some)
}

func (s *Server) queue(r *http.Request) (any, error) {
	// The waiting jobs are read now; the workers, a large read, are those of the last sample.
	v := s.sampler.sample(r.Context())
	found, err := view.Queues(r.Context(), v.Snap.Fresh(s.o.Store), named(r, "queue"))
	if len(found) == 0 { // the workers need not be readable
		return nil, err
	}
	return found[0], nil
}

// scale returns a number for autoscalers. It fails for an old sample: they then change nothing.
func (s *Server) scale(r *http.Request) (any, error) {
	for name, values := range r.URL.Query() {
		if len(values) > 1 {
			return nil, badRequest("%s is repeated; use queues=NAME,NAME", quoted(name))
		}
	}
	q, patterns := &query{Request: r}, "*"
	if r.URL.Query().Has("queues") {
		if patterns = q.text("queues"); q.err != nil {
			return nil, q.err
		}
	}
	spec, err := view.ParseQueues(patterns)
	if err != nil {
		return nil, badRequest("queues: %s", wire.Printable(err.Error(), maxQuoted))
	}
	v := s.sampler.sample(r.Context())
	if err := cmp.Or(v.Queues.Err, v.Jobs.Err); err != nil {
		return nil, err
	}
	return struct {
		view.Scale
		At time.Time `json:"at"`
	}{v.Snap.Scale(spec), v.Queues.At}, nil
}

func (s *Server) queueJobs(r *http.Request) (any, error) {
	q := &query{Request: r}
	c := q.conditions(filter.Waiting)
	limit, offset := q.number("limit", pageSize, 1, pageMost), q.number("cursor", 0, 0, 1<<53)
	if q.err != nil {
		return nil, q.err
	}
	jobs, next, _, err := s.waiting(r.Context(), named(r, "queue"), c, offset, limit)
	if err != nil {
		return nil, err
	}
	l := list{Items: jobs, Partial: next >= 0 && c.Any()}
	if next >= 0 {
		l.Next = new(strconv.FormatInt(next, 10))
	}
	return l, nil
}

// waiting returns jobs of a queue from an offset on, the next offset or -1, and how many it has
// read.
func (s *Server) waiting(ctx context.Context, queue string, c conditions, offset, limit int64) (jobs []view.WaitingJob, next, looked int64, err error) {
	const step = 1000
	end, err := s.searching(ctx, c.Any())
	if err != nil {
		return nil, 0, 0, err
	}
	defer end()
	jobs = []view.WaitingJob{}
	until := time.Now().Add(searchTime)
	for next = offset; ; {
		n := limit
		if c.Any() {
			n = step
		}
		found, read, err := view.WaitingJobs(ctx, s.o.Store, queue, c.Matcher, next, n)
		if err != nil {
			return nil, 0, 0, err
		}
		for _, job := range found {
			if jobs = append(jobs, job); int64(len(jobs)) == limit {
				return jobs, job.Position, looked + job.Position - next, nil
			}
		}
		next, looked = next+read, looked+read
		switch {
		case read < n:
			return jobs, -1, looked, nil
		case time.Now().After(until), looked >= searched:
			return jobs, next, looked, nil
		}
	}
}

// searchTime limits a step of a search, maxSearches the concurrent ones.
const (
	searchTime  = 300 * time.Millisecond
	maxSearches = 8
)

// searching waits, if really, until a search may start, and returns a function that ends it.
func (s *Server) searching(ctx context.Context, really bool) (end func(), err error) {
	if !really {
		return func() {}, nil
	}
	select { // even if the request's time is up: its page says what is missing
	case s.searches <- struct{}{}:
		return func() { <-s.searches }, nil
	default:
	}
	patience := time.NewTimer(10 * searchTime)
	defer patience.Stop()
	select {
	case s.searches <- struct{}{}:
		return func() { <-s.searches }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-patience.C:
		return nil, &Error{Status: http.StatusServiceUnavailable, Code: "busy", Message: "there are too many searches at a time", Hint: "Try again in a moment."}
	}
}

func (s *Server) jobs(r *http.Request) (any, error) {
	q := &query{Request: r}
	c, limit := q.conditions(filter.Running), q.number("limit", pageMost, 1, 100*pageMost)
	if q.err != nil {
		return nil, q.err
	}
	part := s.sampler.sample(r.Context()).Jobs
	picked, cut := view.Running(part.Data, c.Matcher, int(limit))
	l, err := listed(part, some(picked))
	l.Partial = l.Partial || cut
	return l, err
}

func (s *Server) findJob(ctx context.Context, name string) (*view.Job, error) {
	all, unread := view.Jobs(ctx, s.o.Store)
	found, err := view.FindJobs(all, []string{name})
	if err != nil { // if it was found, the rest does not matter
		return nil, cmp.Or(unread, err)
	}
	return found[0], nil
}

func (s *Server) job(r *http.Request) (any, error) {
	v, err := s.findJob(r.Context(), named(r, "id"))
	if err != nil {
		return nil, err
	}
	v.Detail()
	return v, nil
}
