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

// Digest returns what the file of tokens has of one.
func Digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// MaxSearches is how many searches are under way at a time.
const MaxSearches = maxSearches

// Search begins one, and returns what ends it.
func (s *Server) Search() func() {
	s.searches <- struct{}{}
	return func() { <-s.searches }
}

// Outdate has the next request take a new sample.
func (s *Server) Outdate() { s.sampler.outdate() }

// ReadTime bounds what a request reads of Redis.
const ReadTime = readTime

// GroupMore groups failures as it is done beside the requests where a request could not group all.
func (s *Server) GroupMore(ctx context.Context) {
	s.groups.whole = false
	s.groupMore(ctx)
}

// HoldGroups keeps failures from being grouped until what it returns is called.
func (s *Server) HoldGroups() func() {
	s.groups.turn <- struct{}{}
	return func() { <-s.groups.turn }
}
