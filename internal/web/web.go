// Package web serves what package view reads over HTTP: a JSON API, metrics, health checks and the
// dashboard's pages. All state is in Redis, so one server shows all daemons. It works no jobs, and
// nothing depends on it.
//
// routes.go has every path with its role. A sampler reads Redis, rarely while there are no
// visitors, and pages and scrapes share its last sample. Data for one request only (a page of
// failures, a lock) is read for it.
package web

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
	"github.com/resqued/resqued/longjob"
)

// Options configure a server.
type Options struct {
	// Store is read, and changed by operators.
	Store *store.Store
	// Jobs pauses, purges, retries and removes.
	Jobs *client.Client
	// Long returns a client of long jobs for one request.
	Long func(ctx context.Context) *longjob.Client
	// DatabaseLocks lists at most limit locks in PostgreSQL, and reports whether these are all;
	// nil = no database.
	DatabaseLocks func(ctx context.Context, limit int) (locks []*view.Lock, all bool, err error)
	// Checks is what view.Findings compares with, and has the schedules.
	Checks view.Checks
	// Namespace is the prefix of the keys, Version the program's.
	Namespace, Version string
	// Command begins the commands on pages; "" = resqued.
	Command string
	// PathPrefix is the path under which everything is served, "" or "/resqued".
	PathPrefix string
	// StoreName is set if there are several stores; storeNames are all, top their common path.
	StoreName  string
	storeNames []string
	top        string
	// Hosts are allowed host names besides localhost and addresses; "*" = any.
	Hosts []string
	// The function Who returns a request's visitor; nil: all are viewers without a name.
	Who func(r *http.Request) (Visitor, error)
	// Tenant tells the tenants of fair queues apart; nil = there are none.
	Tenant filter.Tenancy
	// Within returns how long the jobs of a queue may wait, 0 = any time; nil: always 0.
	Within func(queue string) time.Duration
	// Redact is which arguments are hidden. HideArgs hides all from viewers.
	Redact   *redact.Rules
	HideArgs bool
	// Log receives errors and changes with the visitor's name; nil = nothing.
	Log *slog.Logger
}

// Role is what a visitor may do.
type Role int

// Each role includes those before it.
const (
	Viewer Role = iota + 1
	Operator
)

func (r Role) String() string {
	if r == Operator {
		return "operator"
	}
	return "viewer"
}

// Visitor is the user behind a request.
type Visitor struct {
	// Name is "" without a login.
	Name string
	Role Role
}

// Server answers requests. Run keeps its sample fresh.
type Server struct {
	o          Options
	beside     *beside
	sampler    *sampler
	handler    http.Handler
	operations operations
	// classes and flows are read by span; newest are the last events as each role sees them.
	classes spanned[[]view.Class]
	flows   spanned[*pages.Chart]
	newest  [Operator + 1]recent[[]view.Event]
	parts   parts
	ready   readiness
	// searches has an element for each running search.
	searches chan struct{}
	groups   grouping
	log      *slog.Logger
}

// CheckPrefix returns an error for an invalid PathPrefix.
func CheckPrefix(prefix string) error {
	if prefix = strings.TrimRight(prefix, "/"); prefix == "" {
		return nil
	}
	if path.Clean(prefix) != prefix || prefix[0] != '/' || strings.ContainsFunc(prefix, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("{}?#%\"\\", c) }) {
		return errors.New("use a path such as /resqued")
	}
	return nil
}

// New returns a server. It does not connect before Run or the first request.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Who == nil {
		o.Who = func(*http.Request) (Visitor, error) { return Visitor{Role: Viewer}, nil }
	}
	o.PathPrefix, o.Command = strings.TrimRight(o.PathPrefix, "/"), cmp.Or(o.Command, "resqued")
	s := &Server{o: o, log: o.Log, searches: make(chan struct{}, maxSearches), beside: newBeside(), ready: newReadiness(), groups: grouping{turn: make(chan struct{}, 1)}}
	s.beside.log = o.Log
	s.sampler = newSampler(o, s.beside)
	s.operations.beside = s.beside
	open, mux := http.NewServeMux(), http.NewServeMux()
	for _, r := range append(s.o.probes(), routes()...) {
		to := mux
		if r.Role == 0 {
			to = open
		}
		to.Handle(r.Method+" "+o.PathPrefix+r.Path, s.serve(r))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.unrouted(mux, w, r) })
	open.Handle("/", s.login(mux))
	s.handler = s.guard(open)
	return s
}

// unrouted answers a request that no route takes: another method does, or the path without its slash.
func (s *Server) unrouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	taken := func(method, path string) bool {
		other := r.Clone(r.Context())
		other.Method, other.URL.Path = method, path
		_, pattern := mux.Handler(other)
		return pattern != "/"
	}
	allowed := slices.DeleteFunc([]string{http.MethodGet, http.MethodPost, http.MethodDelete}, func(method string) bool { return !taken(method, r.URL.Path) })
	short := strings.TrimRight(r.URL.Path, "/")
	switch {
	case len(allowed) > 0:
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		s.fail(w, r, &Error{Status: http.StatusMethodNotAllowed, Code: "method", Message: "this address takes " + strings.Join(allowed, " or ") + ", not " + quoted(r.Method)})
	case short != r.URL.Path && r.Method == http.MethodGet && taken(r.Method, short):
		u := *r.URL
		u.Path, u.RawPath = short, strings.TrimRight(u.RawPath, "/")
		http.Redirect(w, r, u.RequestURI(), http.StatusPermanentRedirect)
	default:
		s.fail(w, r, notFoundPath(r.URL.Path))
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Run samples until ctx is done. Then it ends background work, which leaves the rest of its
// records as they are, and waits for it. Later requests are answered, but cannot start such work.
func (s *Server) Run(ctx context.Context) {
	defer s.beside.stop()
	defer context.AfterFunc(ctx, s.beside.cancel)()
	s.sampler.run(ctx)
}

// Limits of a connection, so that idle clients are dropped.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
	// maxHeader limits a request's header, maxBody its body.
	maxHeader = 32 << 10
	maxBody   = 64 << 10
)

// HTTP returns an http.Server with the limits that this one needs.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ConnContext: withLocalUser, ErrorLog: slog.NewLogLogger(s.log.With("logger", "http").Handler(), slog.LevelInfo),
	}
}
