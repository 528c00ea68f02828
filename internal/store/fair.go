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

// ByGo is the index of no argument: tenants are named by the caller, see ExchangeRequest.Names.
const ByGo = -1

// Fair is how the tenants of a queue take turns.
type Fair struct {
	rule string // as the script exchange has it
}

// NewFair returns a Fair. arg is the index of the argument that is the tenant of a job, for which
// the server then need not ask, in most cases, or ByGo. A tenant of weight 4 begins four times as many jobs as one of weight 1; others is the
// weight of those that weights does not name. Weights are 1 to 1000.
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

// TenantInfo is a tenant of a queue whose jobs wait for their turn.
type TenantInfo struct {
	Tenant string
	Jobs   int64
	// Back: these are the jobs of all tenants that came back without having run; they are next.
	Back bool
}

// Tenants returns the tenants of a queue whose jobs wait in lines of theirs, the next first, at most limit.
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
