package store_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// TestHandOverIsAsTheSlowPath has one job at a time end whose lock others wait for: what the fast
// path hands over itself must leave all as the slow path does.
func TestHandOverIsAsTheSlowPath(t *testing.T) {
	t.Parallel()
	w := newTwins(t)
	rapid.Check(t, w.handOvers)
	t.Log(w.seen)
	if !testing.Short() {
		require.Positive(t, w.seen["next of its line"])
	}
}

func (w *twins) handOvers(t *rapid.T) {
	w.begin(t)
	t.Repeat(map[string]func(*rapid.T){
		"push": w.pushMates, "turn": w.turn, "turn 2": w.turn, "turn 3": w.turn, "turn 4": w.turn, "turn 5": w.turn,
		"pause": w.pause, "steal": w.steal, "die": w.die,
	})
}

// pushMates pushes jobs of few locks, some of them to a second queue with lines.
func (w *twins) pushMates(t *rapid.T) {
	queue := rapid.SampledFrom([]string{"c", "c", "c", "f", "a"}).Draw(t, "queue")
	locks := 1
	if queue != "c" {
		locks = 2
	}
	var payloads []any
	for range rapid.IntRange(1, 8).Draw(t, "jobs") {
		w.number++
		payloads = append(payloads, fmt.Sprintf(`{"class":"L","args":[%d],"n":%d}`, rapid.IntRange(0, locks).Draw(t, "lock"), w.number))
	}
	w.both(t, func(space string) error { return w.redis.RPush(w.ctx, space+"queue:"+queue, payloads...).Err() })
}

// turn ends one job as a rule, and wants some.
func (w *twins) turn(t *rapid.T) {
	proc := rapid.SampledFrom([]string{"p1", "p1", "p1", "p2"}).Draw(t, "process")
	req := store.ExchangeRequest{Proc: proc, Master: "m"}
	if held := w.held[proc]; len(held) > 0 {
		i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
		req.Completions = []store.Completion{{Job: &held[i], Kind: store.Done}}
		w.held[proc] = slices.Concat(held[:i], held[i+1:])
		if left := w.held[proc]; len(left) > 0 && rapid.IntRange(0, 5).Draw(t, "another fails") == 0 {
			req.Completions = append(req.Completions, store.Completion{Job: &left[0], Kind: store.Failed, Failure: store.Record([]byte("F"))})
			w.held[proc] = slices.Clone(left[1:])
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "wants") {
		w.number++
		req.Wants = append(req.Wants, store.Want{Token: strconv.Itoa(w.number), Worker: "h/0.0:1:q"})
	}
	second := store.Queue{Name: "f", Locked: true, Lined: true}
	plain := twinQueues[2]
	plain.Lined = false // its lines are served nevertheless
	req.Queues = rapid.SampledFrom([][]store.Queue{{twinQueues[2]}, {twinQueues[2]}, {plain}, {second, twinQueues[2]}, {twinQueues[2], second}, {twinQueues[2], twinQueues[0]}}).Draw(t, "queues")
	req.Empty = rapid.IntRange(0, 2).Draw(t, "empty")
	before := len(w.held[proc])
	w.send(t, req)
	if got := w.held[proc][before:]; len(req.Completions) == 1 && len(got) == 1 && got[0].LockKey == req.Completions[0].Job.LockKey && got[0].Queue == "c" {
		w.seen["next of its line"]++
	}
}

// pause pauses a queue, or resumes it.
func (w *twins) pause(t *rapid.T) {
	key := "pause:queue:" + rapid.SampledFrom([]string{"c", "f"}).Draw(t, "queue")
	w.both(t, func(space string) error {
		if n, err := w.redis.Del(w.ctx, space+key).Result(); n > 0 || err != nil {
			return err
		}
		return w.redis.Set(w.ctx, space+key, "true", 0).Err()
	})
}

// steal has a stranger take, or free, a lock that is held.
func (w *twins) steal(t *rapid.T) {
	lock := fmt.Sprintf("locket:job_locks:L[%d]", rapid.IntRange(0, 1).Draw(t, "lock"))
	free := rapid.Bool().Draw(t, "free")
	w.both(t, func(space string) error {
		if free {
			return w.redis.Del(w.ctx, space+lock).Err()
		}
		return w.redis.Set(w.ctx, space+lock, "", time.Hour).Err()
	})
}

// handOverDefects are of the part of exchange_first that hands a lock over.
var handOverDefects = []storetest.Mutant{
	{"the queue is paused", "exchange_first", `keys[#keys + 1] = at and prefix .. 'pause:queue:' .. queue or nil`, ``},
	{"another line is ready", "exchange_first", `keys[#keys + 1] = prefix .. 'resqued:ready:' .. names[i]`, ``},
	{"jobs wait in a queue", "exchange_first", `if i > empty then keys[#keys + 1] = prefix .. 'queue:' .. names[i] end`, ``},
	{"more than a line is in the way", "exchange_first", `if met == 1 and n == nqueue and`, `if n == nqueue and`},
	{"queues are left to be looked at", "exchange_first", `if met == 1 and n == nqueue and`, `if met == 1 and nwant > 0 and`},
	{"it stays in its line", "exchange_first", `call('LPOP', list)
        return`, `return`},
	{"it has no record", "exchange_first", `call('HSET', inflight, token, record)
        call('LPOP', list)`, `call('LPOP', list)`},
	{"it does not get the lock", "exchange_first", `call('SET', lock, me .. token, 'EX', ttl)`, ``},
	{"it counts as one in a line", "exchange_first", `pcall_('HINCRBY', lined, queue, '-1')`, `pcall_('HINCRBY', lined, queue, '0')`},
	{"it was the last of its line", "exchange_first", `fence = waiting[2] and`, `fence = waiting[1] and`},
	{"the lock was not held", "exchange_plain", `pcall_('GET', ARGV[locksat]) == me .. ARGV[plainat]`, `true`},
	{"it is not handed over and stays held", "exchange_first", `call('DEL', lock)
    released.kept = false`, `released.kept = false`},
	{"it may not be handed over and stays held", "exchange_first", `if released.kept and not going then
  call('DEL', ARGV[locksat])`, `if released.kept and not going then`},
}

// TestHandOverFindsDefects: a lock is handed over though, or badly.
func TestHandOverFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: handOverDefects, Prepare: func(t *testing.T, m storetest.Mutant) func(*rapid.T) {
		t.Helper()
		return newTwins(t, m).handOvers
	}}
	defects.Find(t)
}
