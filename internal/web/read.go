package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/longjob"
)

const (
	// pageSize is how many things a list has unless told otherwise, pageMost at most.
	pageSize = 50
	pageMost = 1000
	// maxParameter bounds a parameter in bytes.
	maxParameter = 4 << 10
	// searched bounds how many records one step of a search looks at, searchTime how long.
	searched = 100_000
)

// list is an answer with several things.
type list struct {
	Items any `json:"items"`
	// Next continues the list: the value of the parameter cursor; null = it is at its end.
	Next *string `json:"next"`
	// Partial: not all was looked at.
	Partial bool `json:"partial"`
	// At is when it was read, if that was earlier.
	At *time.Time `json:"at,omitempty"`
	// Stale says why it could not be read again.
	Stale string `json:"stale,omitempty"`
}

// of returns a part of a sample, or why there is none.
func of[T any](p Part[T]) (data T, at *time.Time, stale string, err error) {
	if !p.OK {
		return data, nil, "", p.Err
	}
	if p.Err != nil {
		stale = asError(p.Err).Message
	}
	return p.Data, &p.At, stale, nil
}

// text returns a parameter, which must be UTF-8 and not too long.
func text(r *http.Request, name string) (string, error) {
	v := r.URL.Query().Get(name)
	switch {
	case len(v) > maxParameter:
		return "", badRequest("%s has %d bytes; %d are allowed", name, len(v), maxParameter)
	case !utf8.ValidString(v):
		return "", badRequest("%s is not UTF-8", name)
	}
	return v, nil
}

// texts reads parameters into variables.
func texts(r *http.Request, into map[string]*string) error {
	for _, name := range sortedKeys(into) {
		v, err := text(r, name)
		if err != nil {
			return err
		}
		*into[name] = v
	}
	return nil
}

func sortedKeys(m map[string]*string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// number returns a parameter that is a whole number from least to most, or fallback if it is
// missing.
func number(r *http.Request, name string, fallback, least, most int64) (int64, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most {
		return 0, badRequest("%s is %s; use a whole number from %d to %d", name, quoted(v), least, most)
	}
	return n, nil
}

// named returns what stands for a thing in the path. Names that a path cannot hold stand in the
// parameter name, after "-".
func named(r *http.Request, name string) string {
	v := r.PathValue(name)
	if q, err := url.ParseQuery(r.URL.RawQuery); v == "-" && err == nil && q.Has("name") {
		return q.Get("name")
	}
	return v
}

func (s *Server) live(r *http.Request) (any, error) {
	since, err := number(r, "since", 0, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	v := s.sampler.sample(r.Context())
	stats, at, stale, err := of(v.Stats)
	if err != nil {
		return nil, err
	}
	points := []Point{}
	for _, p := range v.Points[max(0, len(v.Points)-kept):] {
		if p.At.UnixMilli() > since {
			points = append(points, p)
		}
	}
	return struct {
		Stats  *view.Stats `json:"stats"`
		At     *time.Time  `json:"at"`
		Stale  string      `json:"stale,omitempty"`
		TookMS int64       `json:"took_ms"`
		Points []Point     `json:"points"`
	}{stats, at, stale, v.Took.Milliseconds(), points}, nil
}

func (s *Server) overview(r *http.Request) (any, error) {
	stats, _, _, err := of(s.sampler.sample(r.Context()).Stats)
	return stats, err
}

func (s *Server) attention(r *http.Request) (any, error) {
	found, at, stale, err := of(s.sampler.sample(r.Context()).Findings)
	if err != nil {
		return nil, err
	}
	some := slices.DeleteFunc(slices.Clone(found), func(f view.Finding) bool { return f.Status == view.FindingOK })
	return list{Items: some, At: at, Stale: stale}, nil
}

func (s *Server) doctor(r *http.Request) (any, error) {
	found, at, stale, err := of(s.sampler.sample(r.Context()).Findings)
	return list{Items: found, At: at, Stale: stale}, err
}

func (s *Server) redis(r *http.Request) (any, error) {
	v := s.sampler.sample(r.Context())
	server, at, stale, err := of(v.Server)
	if err != nil {
		return nil, err
	}
	return struct {
		Server  any        `json:"server"`
		RoundMS float64    `json:"round_trip_ms"`
		AheadMS float64    `json:"ahead_ms"`
		At      *time.Time `json:"at"`
		Stale   string     `json:"stale,omitempty"`
	}{server, float64(server.RoundTrip) / 1e6, float64(server.Ahead) / 1e6, at, stale}, nil
}

func (s *Server) queues(r *http.Request) (any, error) {
	snap, at, stale, err := of(s.sampler.sample(r.Context()).Snap)
	if err != nil {
		return nil, err
	}
	some := make([]view.Queue, 0, len(snap.Queues))
	for _, q := range snap.Queues {
		brief := *q
		brief.Servers = nil
		some = append(some, brief)
	}
	return list{Items: some, At: at, Stale: stale}, nil
}

func (s *Server) queue(r *http.Request) (any, error) {
	// What waits is read now; who works it, which is much to read, is that of the last sample.
	v := s.sampler.sample(r.Context())
	found, err := view.Queues(r.Context(), v.Snap.Data.Fresh(s.o.Store), named(r, "queue"))
	if err != nil {
		return nil, err
	}
	return found[0], nil
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

// waiting returns jobs of a queue from an offset on. next is where the list goes on, -1 at its
// end; looked is how many jobs were looked at.
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
			if (class == "" || job.Class == class) && (args == "" || strings.Contains(string(job.Args), args)) {
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

// searchTime bounds one step of a search, maxSearches how many are under way at a time.
const (
	searchTime  = 300 * time.Millisecond
	maxSearches = 8
)

// searching waits until a search may begin, and returns what ends it. What is no search need not
// wait.
func (s *Server) searching(ctx context.Context, really bool) (end func(), err error) {
	if !really {
		return func() {}, nil
	}
	select { // also for a request whose time is up: its page says what could not be read
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

func cursor(next int64) *string {
	if next < 0 {
		return nil
	}
	text := strconv.FormatInt(next, 10)
	return &text
}

func (s *Server) jobs(r *http.Request) (any, error) {
	f, err := jobFilter(r)
	if err != nil {
		return nil, err
	}
	snap, at, stale, err := of(s.sampler.sample(r.Context()).Snap)
	if err != nil {
		return nil, err
	}
	picked, cut := f.Apply(snap.Jobs)
	if picked == nil {
		picked = []*view.Job{}
	}
	return list{Items: picked, Partial: cut, At: at, Stale: stale}, nil
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

// findJob returns a running job.
func (s *Server) findJob(ctx context.Context, name string) (*view.Job, error) {
	all, err := view.Jobs(ctx, s.o.Store)
	if err != nil {
		return nil, err
	}
	found, err := view.FindJobs(all, []string{name})
	if err != nil {
		return nil, err
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

// failedFilter returns which failures are asked for; any reports whether it leaves some out.
func failedFilter(r *http.Request) (f client.FailedFilter, args string, filtered bool, err error) {
	err = texts(r, map[string]*string{"class": &f.Class, "queue": &f.Queue, "error": &f.Error, "args": &args})
	f.All = f.Class+f.Queue+f.Error == ""
	return f, args, !f.All || args != "", err
}

// matcher returns what selects records: cheap looks at the bytes come before those at the record.
func matcher(ctx context.Context, f client.FailedFilter, args string) func(record []byte) bool {
	needles, plainly := []string{}, []string{f.Class, f.Queue, f.Error}
	if !view.Rules(ctx).Any() { // else the time that it takes would tell what is kept back
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

// plain reports whether a text stands in JSON as it is, whoever has written it.
func plain(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || strings.IndexByte(`"\<>&/'`, c) >= 0 {
			return false
		}
	}
	return text != ""
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
	before, err := number(r, "cursor", 0, 0, 1<<53)
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
	next := page.Next
	if next == 0 {
		next = -1
	}
	return struct {
		list
		// Looked is how many records this step has looked at, of Total.
		Looked int64 `json:"looked"`
		Total  int64 `json:"total"`
	}{list{Items: page.Failures, Next: cursor(next), Partial: page.Left > 0 && (filtered || next < 0)}, page.Looked, page.Total}, nil
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

func (s *Server) workers(r *http.Request) (any, error) {
	snap, at, stale, err := of(s.sampler.sample(r.Context()).Snap)
	if err != nil {
		return nil, err
	}
	return list{Items: snap.Workers, At: at, Stale: stale}, nil
}

func (s *Server) worker(r *http.Request) (any, error) {
	all, err := view.Workers(r.Context(), s.o.Store)
	if err != nil {
		return nil, err
	}
	found, err := view.FindWorkers(all, []string{named(r, "worker")})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func (s *Server) process(r *http.Request) (any, error) {
	all, err := view.Workers(r.Context(), s.o.Store)
	if err != nil {
		return nil, err
	}
	name := named(r, "process")
	for _, w := range all {
		for _, p := range w.Processes {
			if p.Proc == name {
				return struct {
					Worker string `json:"worker"`
					view.Process
				}{w.Worker, p}, nil
			}
		}
	}
	return nil, &view.NotFoundError{Kind: "process", Name: name}
}

// lockKinds are the values of kind.
var lockKinds = []string{store.LocketLock, store.TimeoutLock, store.LonerMarker}

func (s *Server) locks(r *http.Request) (any, error) {
	kind, err := text(r, "kind")
	if err != nil {
		return nil, err
	}
	if kind != "" && !slices.Contains(lockKinds, kind) {
		return nil, badRequest("kind is %s; use %s", quoted(kind), strings.Join(lockKinds, ", "))
	}
	limit, err := number(r, "limit", pageMost, 1, 10*pageMost)
	if err != nil {
		return nil, err
	}
	found, cut, err := view.Locks(r.Context(), s.o.Store, kind, int(limit))
	return list{Items: found, Partial: cut}, err
}

func (s *Server) lock(r *http.Request) (any, error) {
	v, err := view.FindLock(r.Context(), s.o.Store, named(r, "key"))
	if err != nil {
		return nil, err
	}
	return v, v.Detail(r.Context(), s.o.Store)
}

func (s *Server) locksWaiting(r *http.Request) (any, error) {
	found, err := view.LockedQueues(r.Context(), s.o.Store)
	if found == nil {
		found = []view.LockedQueue{}
	}
	return list{Items: found}, err
}

func (s *Server) locksUnique(r *http.Request) (any, error) {
	found, err := view.UniqueQueues(r.Context(), s.o.Store, s.o.Checks.Unique)
	if found == nil {
		found = []view.UniqueQueue{}
	}
	return list{Items: found}, err
}

func (s *Server) longJobs(r *http.Request) (any, error) {
	f := longjob.Filter{}
	var status string
	if err := texts(r, map[string]*string{"class": &f.Class, "status": &status}); err != nil {
		return nil, err
	}
	f.Status = longjob.Status(status)
	limit, err := number(r, "limit", pageSize, 1, pageMost)
	if err != nil {
		return nil, err
	}
	f.Limit = int(limit)
	found, more, err := view.LongJobs(r.Context(), s.o.Long(r.Context()), f)
	return list{Items: found, Partial: more}, err
}

func (s *Server) longJob(r *http.Request) (any, error) {
	run, err := view.FindLongJob(r.Context(), s.o.Long(r.Context()), named(r, "uuid"))
	if err != nil {
		return nil, err
	}
	v := view.NewLongJob(r.Context(), run)
	v.Timeline, err = view.EndedSlices(r.Context(), longstore.New(s.o.Store.Redis()), run.UUID)
	return v, err
}

func (s *Server) schedule(r *http.Request) (any, error) {
	found, _, err := view.Schedules(r.Context(), s.o.Store, s.o.Checks.Schedules)
	if found == nil {
		found = []*view.Schedule{}
	}
	return list{Items: found}, err
}

func (s *Server) delayed(r *http.Request) (any, error) {
	var f view.DelayedFilter
	if err := texts(r, map[string]*string{"class": &f.Class, "queue": &f.Queue}); err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", pageSize, 1, pageMost)
	if err != nil {
		return nil, err
	}
	found, more, err := view.Delayed(r.Context(), s.o.Store, f, int(limit))
	return list{Items: found, Partial: more}, err
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write([]byte("ok\n"))
	return err
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.o.Store.Ping(ctx); err != nil {
		return err
	}
	return s.healthz(w, r)
}
