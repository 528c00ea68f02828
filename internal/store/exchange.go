package store

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

// exchangeScript's parts are in the order of use; see lua/exchange_fast.lua.
var exchangeScript = rdb.NewScript(Lua, "exchange",
	"lib/base", "lib/payload", "lib/rights", "exchange_fast", "exchange_plain", "exchange_start", "exchange_first", "exchange_take",
	"lib/records", "lib/blocked_queues", "lib/lines", "lib/limits", "lib/line_locks", "lib/unique", "lib/delay", "lib/suspects", "lib/deaths", "lib/pause", "lib/parked", "lib/grace",
	"exchange_slow", "exchange_finish", "exchange_wants", "exchange_locks", "exchange_reserve", "exchange_lines", "exchange_tenants", "exchange_fair", "exchange_queues")

// Exchange ends jobs and reserves new ones, in one script. It returns ErrFenced, with nothing done, if the
// process has no valid lease.
//
// After any other error that is not Unexecuted, the call may have run. Then repeat the same request with Repeat
// set: completions are only applied once, and the wants get back what they already hold.
func (s *Store) Exchange(ctx context.Context, req ExchangeRequest) (ExchangeReply, error) {
	for i := range req.Completions {
		s.fit(ctx, &req.Completions[i].Failure, req.Completions[i].Job.Payload)
	}
	order := plainFirst(req.Completions)
	raw, err := s.db.Eval(ctx, exchangeScript, s.db.Key(rdb.KeyInflight)+req.Proc, s.exchangeArgs(req, order))
	if err != nil {
		return ExchangeReply{}, err
	}
	return parseExchange(raw, order, req.Wants)
}

// leaseLeft is how long a process's lease must still last when it takes jobs: by the server's clock, it has
// then beaten within the last 4/7 of a lease, as is required of lock holders by their own clock.
func (s *Store) leaseLeft() time.Duration { return s.opts.Load().Lease * 3 / 7 }
