package store

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/rdb"
)

// The parts of the exchange, see lua/exchange_fast.lua. The fast path comes first.
var exchangeScript = rdb.NewScript(Lua, "exchange",
	"lib/base", "lib/payload", "lib/rights", "exchange_fast", "exchange_plain", "exchange_start", "exchange_take",
	"lib/records", "lib/blocked_queues", "lib/lines", "lib/line_locks", "lib/unique", "lib/delay", "lib/suspects", "lib/deaths", "lib/pause", "lib/parked", "lib/grace",
	"exchange_slow", "exchange_finish", "exchange_wants", "exchange_locks", "exchange_reserve", "exchange_lines", "exchange_tenants", "exchange_fair", "exchange_queues")

// Exchange ends jobs and reserves new ones, in one script. It returns ErrFenced,
// with nothing done, when the process has no valid lease.
//
// After any other error for which Unexecuted is false the call may have run. Send
// the very same request again with Repeat set: completions are applied once
// anyhow, and the wants get back what they already hold.
func (s *Store) Exchange(ctx context.Context, req ExchangeRequest) (ExchangeReply, error) {
	for i := range req.Completions {
		s.fit(ctx, &req.Completions[i].Failure, req.Completions[i].Job.Payload)
	}
	raw, err := s.db.Eval(ctx, exchangeScript, s.db.Key(rdb.KeyInflight)+req.Proc, s.exchangeArgs(req))
	if err != nil {
		return ExchangeReply{}, err
	}
	return parseExchange(raw, req.Completions, req.Wants)
}

// leaseLeft is how long the lease of a process has to last yet when it takes jobs. By the server's
// clock it has beaten within 4/7 of a lease then, as a holder of a lock has by its own.
func (s *Store) leaseLeft() time.Duration { return s.opts.Load().Lease * 3 / 7 }
