package view

import (
	"context"

	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
)

// Tenant is a tenant of a fair queue whose jobs wait for their turn.
type Tenant struct {
	Queue string `json:"queue"`
	// Tenant is computed from a payload by the queue's key, or a digest if arguments are hidden.
	// Empty for jobs without a tenant, and with Back.
	Tenant string `json:"tenant"`
	Jobs   int64  `json:"jobs"`
	// Back marks the jobs of all tenants that came back without having run.
	Back bool `json:"back,omitempty"`
}

// Tenants returns at most limit waiting tenants, the next one first, and whether there are more.
func Tenants(ctx context.Context, s *store.Store, queue string, limit int) (views []Tenant, cut bool, err error) {
	list, err := s.Tenants(ctx, queue, limit+1)
	if err != nil {
		return nil, false, err
	}
	for _, t := range list[:min(limit, len(list))] {
		v := Tenant{Queue: queue, Tenant: t.Tenant, Jobs: t.Jobs, Back: t.Back}
		if t.Tenant != "" && redact.From(ctx).Any() {
			v.Tenant = redact.Digest("tenant", "", t.Tenant) // made of arguments
		}
		views = append(views, v)
	}
	return views, len(list) > limit, nil
}
