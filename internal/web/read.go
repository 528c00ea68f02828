package web

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

const (
	// pageSize is the default length of a list, pageMost the maximum.
	pageSize = 50
	pageMost = 1000
	// maxParameter limits a parameter in bytes.
	maxParameter = 4 << 10
	// searched limits the records that one step of a search reads.
	searched = 100_000
)

type list struct {
	Items any `json:"items"`
	// Next is the cursor of the following page; null at the end.
	Next *string `json:"next"`
	// Partial: not everything was read.
	Partial bool `json:"partial"`
	// At is when it was read, if earlier.
	At *time.Time `json:"at,omitempty"`
	// Stale is why it could not be reread.
	Stale   string `json:"stale,omitempty"`
	Missing string `json:"missing,omitempty"`
}

// some returns a list that is [] rather than null in JSON.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func missing(err error) string {
	if err == nil {
		return ""
	}
	return asError(err).Message
}

func listed[T any](p pages.Widget[T], items any) (list, error) {
	_, at, stale, err := of(p)
	return list{Items: items, At: at, Stale: stale, Missing: missing(p.Lacks), Partial: p.Lacks != nil}, err
}

// of returns a part of a sample, or why there is none.
func of[T any](p pages.Widget[T]) (data T, at *time.Time, stale string, err error) {
	if !p.OK {
		return data, nil, "", p.Err
	}
	if p.Err != nil {
		stale = asError(p.Err).Message
	}
	return p.Data, &p.At, stale, nil
}

// query reads the parameters of a request. err is the first problem.
type query struct {
	*http.Request
	err error
}

func (q *query) wrong(format string, a ...any) {
	if q.err == nil {
		q.err = badRequest(format, a...)
	}
}

// text returns a parameter, which must be UTF-8 and not too long.
func (q *query) text(name string) string {
	v := q.URL.Query().Get(name)
	switch {
	case len(v) > maxParameter:
		q.wrong("%s has %d bytes; %d are allowed", name, len(v), maxParameter)
	case !utf8.ValidString(v):
		q.wrong("%s is not UTF-8", name)
	default:
		return v
	}
	return ""
}

// number returns an integer parameter from least to most, or fallback if it is missing.
func (q *query) number(name string, fallback, least, most int64) int64 {
	v := q.URL.Query().Get(name)
	if v == "" {
		return fallback
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most {
		q.wrong("%s is %s; use a whole number from %d to %d", name, quoted(v), least, most)
	}
	return n
}

// named returns a name in the path or, after "-" for what no path can contain, in the parameter
// name.
func named(r *http.Request, name string) string {
	v := r.PathValue(name)
	if q, err := url.ParseQuery(r.URL.RawQuery); v == "-" && err == nil && q.Has("name") {
		return q.Get("name")
	}
	return v
}

func (s *Server) live(r *http.Request) (any, error) {
	q := &query{Request: r}
	since := q.number("since", 0, 0, 1<<53)
	if q.err != nil {
		return nil, q.err
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
	part := s.sampler.sample(r.Context()).Findings
	return listed(part, slices.DeleteFunc(slices.Clone(part.Data), func(f view.Finding) bool { return f.Status == view.FindingOK }))
}

func (s *Server) doctor(r *http.Request) (any, error) {
	part := s.sampler.sample(r.Context()).Findings
	return listed(part, part.Data)
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

// cursor returns the cursor of a following page, if there is one.
func cursor(next string) *string {
	if next == "" {
		return nil
	}
	return &next
}

func (s *Server) workers(r *http.Request) (any, error) {
	part := s.sampler.sample(r.Context()).Workers
	return listed(part, part.Data)
}

func (s *Server) worker(r *http.Request) (any, error) {
	all, unread := view.Workers(r.Context(), s.o.Store)
	found, err := view.FindWorkers(all, []string{named(r, "worker")})
	if err != nil { // other workers need not be readable
		return nil, cmp.Or(unread, err)
	}
	return found[0], nil
}

func (s *Server) process(r *http.Request) (any, error) {
	all, err := view.Workers(r.Context(), s.o.Store)
	if all == nil {
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

var lockKinds = []string{store.LocketLock, store.TimeoutLock, store.LonerMarker}

const databasePatience = 2 * time.Second

// databaseLocks lists the locks in PostgreSQL, if it is used.
func (s *Server) databaseLocks(ctx context.Context, limit int) (locks []*view.Lock, all bool, err error) {
	if s.o.DatabaseLocks == nil || limit <= 0 {
		return nil, s.o.DatabaseLocks == nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, databasePatience)
	defer cancel()
	return s.o.DatabaseLocks(ctx, limit)
}

func (s *Server) locks(r *http.Request) (any, error) {
	q := &query{Request: r}
	kind := q.text("kind")
	if kinds := append(slices.Clone(lockKinds), view.DatabaseLock); kind != "" && !slices.Contains(kinds, kind) {
		q.wrong("kind is %s; use %s", quoted(kind), strings.Join(kinds, ", "))
	}
	limit := q.number("limit", pageMost, 1, 10*pageMost)
	if q.err != nil {
		return nil, q.err
	}
	var err error
	found, cut, lacks := []*view.Lock{}, false, ""
	if kind != view.DatabaseLock {
		if found, cut, err = view.Locks(r.Context(), s.o.Store, kind, int(limit)); err != nil {
			return nil, err
		}
	}
	if kind == "" || kind == view.DatabaseLock {
		others, all, err := s.databaseLocks(r.Context(), int(limit)-len(found))
		if err != nil {
			lacks = "PostgreSQL: " + wire.Printable(err.Error(), maxQuoted)
		}
		if err != nil && kind != "" {
			return nil, &Error{Status: http.StatusServiceUnavailable, Code: "unreachable", Message: lacks}
		}
		if err != nil { // Redis's are useful without them
			others, all = nil, false
		}
		found, cut = append(found, others...), cut || !all
	}
	return list{Items: found, Partial: cut, Missing: lacks}, nil
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
	return list{Items: some(found)}, err
}

func (s *Server) locksUnique(r *http.Request) (any, error) {
	found, err := view.UniqueQueues(r.Context(), s.o.Store, s.o.Checks.Unique)
	return list{Items: some(found)}, err
}

func (s *Server) longJobs(r *http.Request) (any, error) {
	q := &query{Request: r}
	f := longjob.Filter{Class: q.text("class"), Status: longjob.Status(q.text("status")), Limit: int(q.number("limit", pageSize, 1, 10*pageMost))}
	if q.err != nil {
		return nil, q.err
	}
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
	if found == nil && err != nil {
		return nil, err
	}
	return list{Items: found, Missing: missing(err), Partial: err != nil}, nil
}

func (q *query) delayedPlace() store.DelayedPlace {
	cursor := q.text("cursor")
	place, err := store.ParseDelayedPlace(cursor)
	if err != nil {
		q.wrong("cursor is %s: %s", quoted(cursor), err)
	}
	return place
}

func (s *Server) delayed(r *http.Request) (any, error) {
	q := &query{Request: r}
	c := q.conditions(filter.Delayed)
	limit, after := q.number("limit", pageSize, 1, pageMost), q.delayedPlace()
	if q.err != nil {
		return nil, q.err
	}
	found, next, err := view.Delayed(r.Context(), s.o.Store, c.Matcher, after, int(limit))
	return list{Items: found, Next: cursor(next)}, err
}
