package web

import (
	"context"
	"crypto/sha256"
)

// Row is a route as tests see it.
type Row struct {
	Method, Path string
	Role         Role
}

// Table lists all routes of a server.
func Table() []Row {
	var all []Row
	for _, r := range append((&Options{}).probes(), routes()...) {
		all = append(all, Row{r.Method, r.Path, r.Role})
	}
	return all
}

// Digest returns the digest of a token in the token file.
func Digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// MaxSearches is the maximum of concurrent searches.
const MaxSearches = maxSearches

// Search begins a search, and returns a function that ends it.
func (s *Server) Search() func() {
	s.searches <- struct{}{}
	return func() { <-s.searches }
}

// Outdate makes the next request take a new sample.
func (s *Server) Outdate() { s.sampler.outdate() }

// ReadTime bounds what a request reads of Redis.
const ReadTime = readTime

// GroupMore groups failures as the background work does that continues a request.
func (s *Server) GroupMore(ctx context.Context) {
	s.groups.whole = false
	s.groupMore(ctx)
}

// HoldGroups keeps failures from being grouped until the returned function is called.
func (s *Server) HoldGroups() func() {
	s.groups.turn <- struct{}{}
	return func() { <-s.groups.turn }
}
