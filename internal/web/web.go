// Package web serves what package view reads by HTTP: a JSON API, metrics, health, and the
// dashboard's pages. All state is in Redis, so that one server shows all daemons; it works no
// jobs and nothing depends on it.
//
// One table (routes.go) has every path with the role that it takes. One sampler per server looks
// at Redis, seldom while nobody looks, and all pages and scrapes are answered from its last
// sample; what belongs to one request alone (a page of failures, one lock) is read for it.
package web

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/web/pages"
	"github.com/resqued/resqued/longjob"
)

// Options are what a server needs.
type Options struct {
	// Store is read, and changed by operators.
	Store *store.Store
	// Jobs pauses, purges, retries and removes.
	Jobs *client.Client
	// Long returns what reads and changes long jobs, for one request.
	Long func(ctx context.Context) *longjob.Client
	// DatabaseLocks lists the locks in PostgreSQL, limit at most, and reports whether these are all;
	// nil = there is no such database.
	DatabaseLocks func(ctx context.Context, limit int) (locks []*view.Lock, all bool, err error)
	// Checks says what view.Findings compares, Schedules which recurring jobs there are.
	Checks view.Checks
	// Namespace is that of the keys, Version that of the program, for people.
	Namespace, Version string
	// Command begins the commands that pages show; "" = resqued.
	Command string
	// PathPrefix is the path under which everything is served, "" or "/resqued".
	PathPrefix string
	// StoreName is the name of the store, if there are several; see Stores. storeNames are those of
	// all, and top the path that they have in common.
	StoreName  string
	storeNames []string
	top        string
	// Hosts are names under which the server may be asked for besides localhost and addresses
	// (see Guard); "*" = any.
	Hosts []string
	// Who says who asks; nil: everybody is a viewer without a name.
	Who func(r *http.Request) (Visitor, error)
	// Within returns how long the jobs of a queue may wait, 0 = no promise was made; nil: none was.
	Within func(queue string) time.Duration
	// Redact is what is not shown of arguments. HideArgs: nothing of them to viewers.
	Redact   *redact.Rules
	HideArgs bool
	// Log gets what goes wrong and who has changed what; nil = nothing.
	Log *slog.Logger
}

// Role is what a visitor may do.
type Role int

// The roles. Each may do what those before it may.
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

// Visitor is who asks.
type Visitor struct {
	// Name is "" without a login.
	Name string
	Role Role
}

// Server answers requests. Run keeps its sample fresh.
type Server struct {
	o       Options
	beside  *beside
	sampler *sampler
	handler http.Handler
	// operations are acts on many records that are under way.
	operations operations
	// classes is what they cost by span, flows how many jobs ran; newest are the last events, as each
	// role sees them.
	classes spanned[[]view.Class]
	flows   spanned[*pages.Chart]
	newest  [Operator + 1]recent[[]view.Event]
	parts   parts
	ready   readiness
	// searches has an element for each search that is under way.
	searches chan struct{}
	groups   grouping
	log      *slog.Logger
}

// CheckPrefix returns an error for what no PathPrefix can be.
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
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, notFoundPath(r.URL.Path)) })
	open.Handle("/", s.login(mux))
	s.handler = s.guard(open)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Run samples until ctx is done. Then it ends what goes on beside the requests, which leaves as it
// was what it has not come to, and returns when that has ended. Requests may be answered after that;
// what they would begin is refused.
func (s *Server) Run(ctx context.Context) {
	defer s.beside.stop()
	defer context.AfterFunc(ctx, s.beside.cancel)()
	s.sampler.run(ctx)
}

// The limits of a connection: nobody keeps one without asking.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
	// maxHeader bounds the head of a request, maxBody what follows it.
	maxHeader = 32 << 10
	maxBody   = 64 << 10
)

// HTTP returns a server of net/http with the limits that this one needs.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ConnContext: withLocalUser, ErrorLog: slog.NewLogLogger(s.log.With("logger", "http").Handler(), slog.LevelInfo),
	}
}
