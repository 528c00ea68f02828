package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// ByGo says that no argument is the tenant: the caller names tenants, see ExchangeRequest.Names.
const ByGo = -1

// Fair is how the tenants of a queue take turns.
type Fair struct {
	rule string // for the script exchange
}

// NewFair returns a Fair. arg is the index of the argument that is the tenant, which the server can mostly read
// itself, or ByGo. A tenant of weight 4 begins four times as many jobs as one of weight 1; others is the weight
// of tenants not in weights. Weights are 1 to 1000.
func NewFair(arg int, weights map[string]int, others int) *Fair {
	var b strings.Builder
	if arg == ByGo {
		b.WriteString("-")
	} else {
		b.WriteString(strconv.Itoa(arg))
	}
	fmt.Fprintf(&b, " %d", others)
	for _, tenant := range slices.Sorted(maps.Keys(weights)) {
		fmt.Fprintf(&b, " %d %d %s", weights[tenant], len(tenant), tenant)
	}
	return &Fair{rule: b.String()}
}

// TenantInfo is a tenant of a queue with waiting jobs.
type TenantInfo struct {
	Tenant string
	Jobs   int64
	// Back: the jobs of all tenants that came back without having run; they are next.
	Back bool
}

// Tenants returns at most limit tenants of a queue with waiting jobs, the next first.
func (s *Store) Tenants(ctx context.Context, queue string, limit int) ([]TenantInfo, error) {
	places, err := s.db.Read.ZRange(ctx, s.db.Key(rdb.KeyTurns)+queue, 0, int64(limit)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("tenants of %q: %w", queue, err)
	}
	out, sizes := make([]TenantInfo, len(places)), make([]*redis.IntCmd, len(places))
	err = s.readEach(ctx, len(places), func(pipe redis.Pipeliner, i int) { sizes[i] = pipe.LLen(ctx, s.db.TurnKey(queue, places[i])) })
	if err != nil {
		return nil, fmt.Errorf("tenants of %q: %w", queue, err)
	}
	for i, place := range places {
		tenant, named := strings.CutPrefix(place, "=")
		out[i] = TenantInfo{Jobs: sizes[i].Val(), Back: !named}
		if named {
			out[i].Tenant = tenant
		}
	}
	return slices.DeleteFunc(out, func(t TenantInfo) bool { return t.Jobs == 0 }), nil
}
