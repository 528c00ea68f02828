package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// To do remotely what a signal does, a client leaves an order in resqued:orders:<master>. The master takes it
// with the next renewal of its entry, carries it out, and answers in resqued:ordered:<master>.

var requestOrderScript = rdb.NewScript(Lua, "request_order", "lib/base", "lib/rights", "request_order")

// FieldOrders is the field of a master's entry that says that it takes orders.
const FieldOrders = "orders"

// OrderPatience is how long an order waits for its master.
const OrderPatience = time.Minute

// Verb is the action of an order.
type Verb string

const (
	OrderPause   Verb = "pause"   // as signal USR2
	OrderResume  Verb = "resume"  // as signal CONT
	OrderDrain   Verb = "drain"   // as signal QUIT
	OrderRecycle Verb = "recycle" // replace worker processes, as if they were too old
)

// Order is an instruction to a master.
type Order struct {
	ID   string
	Verb Verb
	// Proc is the worker process; empty = all of them.
	Proc string
}

// OrderAnswer is the outcome of an order.
type OrderAnswer struct {
	// Done: it was carried out, now or before.
	Done bool
	Text string
}

// The outcomes of RequestOrder.
const (
	OrderAsked = "asked"
	OrderGone  = "gone" // the master does not exist, or not any more
	OrderOld   = "old"  // its version does not take orders
)

// RequestOrder leaves an order for a master and returns its id, for the answer, and OrderAsked, OrderGone or
// OrderOld.
func (s *Store) RequestOrder(ctx context.Context, master string, verb Verb, proc string) (id, outcome string, err error) {
	id = rand.Text()
	raw, err := s.db.Eval(ctx, requestOrderScript, s.db.Key(keyMaster)+master,
		[]any{s.db.Key(keyOrders) + master, id, string(verb) + " " + proc})
	if err != nil {
		return "", "", fmt.Errorf("%s %s: %w", verb, master, err)
	}
	outcome, _ = raw.(string)
	return id, outcome, nil
}

// OrderAnswered returns the answer to an order, nil if there is none yet, and whether its master still
// exists.
func (s *Store) OrderAnswered(ctx context.Context, master, id string) (answer *OrderAnswer, there bool, err error) {
	var value *redis.StringCmd
	var entry *redis.IntCmd
	if err := s.db.Together(ctx, func(pipe redis.Pipeliner) {
		value, entry = pipe.HGet(ctx, s.db.Key(keyOrdered)+master, id), pipe.Exists(ctx, s.db.Key(keyMaster)+master)
	}); err != nil && !rdb.IsNil(err) {
		return nil, false, fmt.Errorf("answer of %s: %w", master, err)
	}
	if word, text, ok := strings.Cut(value.Val(), " "); ok {
		answer = &OrderAnswer{Done: word == "done", Text: text}
	}
	return answer, entry.Val() == 1, nil
}

func (a OrderAnswer) encode() string {
	if a.Done {
		return "done " + a.Text
	}
	return "refused " + a.Text
}

// parseOrders reads the output of put_master.lua, without invalid orders, the oldest first: Redis's hashes are
// unordered, and a pause and a resume must not be swapped.
func parseOrders(list []string) (orders []Order) {
	given := map[string]int64{} // when, in ms, by id
	for i := 0; i+1 < len(list); i += 2 {
		fields := strings.SplitN(list[i+1], " ", 3)
		if len(fields) == 3 {
			given[list[i]], _ = strconv.ParseInt(fields[0], 10, 64)
			orders = append(orders, Order{ID: list[i], Verb: Verb(fields[1]), Proc: fields[2]})
		}
	}
	slices.SortStableFunc(orders, func(a, b Order) int { return cmp.Compare(given[a.ID], given[b.ID]) })
	return orders
}
