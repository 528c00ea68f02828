package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/resqued/resqued/internal/web/pages"
)

// storePath is the parent path of the stores' dashboards.
const storePath = "/store/"

// Stores serves the dashboards of several stores, each below /store/NAME. The root leads to the
// first one, and each page links to the same page of the others.
type Stores struct {
	servers []*Server
	handler http.Handler
	ready   readiness
}

// NewStores takes options with a StoreName each, and the same PathPrefix, Hosts and Who.
func NewStores(each []Options) *Stores {
	prefix := strings.TrimRight(each[0].PathPrefix, "/")
	names := make([]string, len(each))
	for i, o := range each {
		names[i] = o.StoreName
	}
	s := &Stores{ready: newReadiness()}
	mux := http.NewServeMux()
	for _, o := range each {
		o.PathPrefix, o.storeNames, o.top = prefix+storePath+o.StoreName, names, prefix
		one := New(o)
		s.servers = append(s.servers, one)
		mux.Handle(o.PathPrefix+"/", one)
		// The mux would redirect without a login, which would reveal the stores' names.
		mux.Handle(o.PathPrefix, one.guard(one.login(http.RedirectHandler(o.PathPrefix+"/", http.StatusSeeOther))))
	}
	first := s.servers[0]
	mux.Handle("GET "+prefix+"/{$}", first.guard(first.login(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		name, page := q.Get("store"), q.Get("page")
		if name == "" {
			name = names[0]
		}
		if !slices.Contains(names, name) {
			first.fail(w, r, &Error{Status: http.StatusNotFound, Code: "not_found", Message: "there is no store " + quoted(name)})
			return
		}
		if !slices.Contains(pages.Paths(), page) {
			page = "/"
		}
		http.Redirect(w, r, prefix+storePath+name+page, http.StatusSeeOther)
	}))))
	mux.Handle("GET "+prefix+"/healthz", first.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = first.healthz(w, r) })))
	mux.Handle("GET "+prefix+"/readyz", first.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probed(w, r, s.ready.ask(r.Context(), s.pingAny, first.log))
	})))
	mux.Handle("/", first) // which answers that it is not found
	s.handler = mux
	return s
}

// ServeHTTP implements http.Handler.
func (s *Stores) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Run runs all stores' servers; see Server.Run.
func (s *Stores) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, one := range s.servers {
		all.Go(func() { one.Run(ctx) })
	}
	all.Wait()
}

// HTTP is like Server.HTTP, for all stores.
func (s *Stores) HTTP() *http.Server {
	h := s.servers[0].HTTP()
	h.Handler = s
	return h
}
