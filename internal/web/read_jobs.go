package web

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

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
		if name != "queues" || len(values) > 1 { // or "queue=mail" would count all queues
			return nil, badRequest("%s is not a parameter here, or is repeated; use queues=NAME,NAME", quoted(name))
		}
	}
	patterns := "*"
	if r.URL.Query().Has("queues") {
		var err error
		if patterns, err = text(r, "queues"); err != nil {
			return nil, err
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
	var class, args string
	if err := texts(r, map[string]*string{"class": &class, "args": &args}); err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", pageSize, 1, pageMost)
	if err != nil {
		return nil, err
	}
	offset, err := number(r, "cursor", 0, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	jobs, next, _, err := s.waiting(r.Context(), named(r, "queue"), class, args, offset, limit)
	if err != nil {
		return nil, err
	}
	return list{Items: jobs, Next: cursor(next), Partial: next >= 0 && class+args != ""}, nil
}

// waiting returns jobs of a queue from an offset on, the next offset or -1, and how many it has
// read.
func (s *Server) waiting(ctx context.Context, queue, class, args string, offset, limit int64) (jobs []view.WaitingJob, next, looked int64, err error) {
	const step = 1000
	end, err := s.searching(ctx, class+args != "")
	if err != nil {
		return nil, 0, 0, err
	}
	defer end()
	jobs = []view.WaitingJob{}
	until := time.Now().Add(searchTime)
	for next = offset; ; {
		n := limit
		if class+args != "" {
			n = step
		}
		v := view.Queue{Queue: queue}
		if _, err := v.ReadJobs(ctx, s.o.Store, next, n); err != nil {
			return nil, 0, 0, err
		}
		for _, job := range v.Jobs {
			next, looked = next+1, looked+1
			if (class == "" || job.Is(class)) && (args == "" || strings.Contains(string(job.Args), args)) {
				if jobs = append(jobs, job); int64(len(jobs)) == limit {
					break
				}
			}
		}
		switch {
		case int64(len(v.Jobs)) < n && int64(len(jobs)) < limit:
			return jobs, -1, looked, nil
		case int64(len(jobs)) == limit, time.Now().After(until), looked >= searched:
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
	f, err := jobFilter(r)
	if err != nil {
		return nil, err
	}
	part := s.sampler.sample(r.Context()).Jobs
	picked, cut := f.Apply(part.Data)
	if picked == nil {
		picked = []*view.Job{}
	}
	l, err := listed(part, picked)
	l.Partial = l.Partial || cut
	return l, err
}

func jobFilter(r *http.Request) (*view.JobFilter, error) {
	f := &view.JobFilter{}
	var class, queue, older string
	if err := texts(r, map[string]*string{"class": &class, "queue": &queue, "older": &older}); err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", pageMost, 1, 100*pageMost)
	if err != nil {
		return nil, err
	}
	f.Limit = int(limit)
	if class != "" {
		f.Classes = []string{class}
	}
	if queue != "" {
		f.Queues = []string{queue}
	}
	if older != "" {
		if f.OlderThan, err = time.ParseDuration(older); err != nil || f.OlderThan < 0 {
			return nil, badRequest("older is %s; use a duration such as 10m", quoted(older))
		}
	}
	return f, nil
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
