package longstore

import "context"

type contextKey struct{}

// InContext returns a context in which FromContext finds the store: jobs of resqued's own kinds use the
// worker's connections.
func (s *Store) InContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// FromContext returns the store of a worker process; nil elsewhere.
func FromContext(ctx context.Context) *Store {
	s, _ := ctx.Value(contextKey{}).(*Store)
	return s
}
