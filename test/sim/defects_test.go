package sim

import (
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/testkit/storetest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// defects are put into the scripts, to see that the simulation notices them. The models have others, whose effects
// end by themselves (a lock that is not released), or which need a process that stands still.
var defects = []storetest.Mutant{
	{"a lock is released whoever holds it", "base", `pcall_('GET', lock) == value then call('DEL', lock)`, `pcall_('GET', lock) then call('DEL', lock)`},
	{"a lock is taken without a look", "exchange_locks", `'NX', 'EX', seconds or ttl`, `'EX', seconds or ttl`},
	{"a lock is taken without a look, fast path", "exchange_take", `'NX', 'EX', ttl`, `'EX', ttl`},
	{"jobs with one lock are taken together", "exchange_take", `if met[lock] then together = false end`, ``},
	{"a completion is applied again", "exchange_finish", `if call('HDEL', inflight, e.token) == 0 then`, `if call('HDEL', inflight, e.token) == 2 then`},
	{"a completion leaves the record", "exchange_finish", `if call('HDEL', inflight, e.token) == 0 then`, `if call('HEXISTS', inflight, e.token) == 0 then`},
	{"a completion leaves the record, fast path", "exchange_plain", `size = query('HDEL', inflight, unpack(ARGV, plainat, plainat + nready - 1))`, `size = nready`},
	{"a repeated request takes jobs again", "exchange_wants", `local mine = again and call(`, `local mine = false and call(`},
	{"a record is recovered again", "recover", `call('HDEL', KEYS[1], token)`, ``},
	{"a beat extends no lock", "beat", `call('EXPIRE', key, ttl)`, ``},
	{"a job that was taken stays in its queue", "exchange_take", `call('LTRIM', key, fmt('%d', n), '-1')`, ``},
	{"a job that was taken has no record", "exchange_take", `if 2 * w - 2 > written then call('HSET', inflight, unpack(fields, written + 1, 2 * w - 2)) end`, ``},
	{"a locked job is dropped, fast path", "exchange_take", `call('LPUSH', key, popped)`, ``},
	{"a locked job is dropped", "exchange_reserve", `call('RPUSH', q.key, payload)`, ``},
	{"delayed jobs are copied", "move_due", `call('ZREM', own, member)`, ``},
	{"a delayed job is lost where it stands", "move_due", `if #tail == 100 then flush(queue) end`, `if #tail == 2 then tails[queue] = nil end`},
	{"nobody is suspected", "recover", `(suspect and 1 or 0)`, `0`},
	{"a suspect is lost", "suspects", `call('RPUSH', apartkey(prefix, queue), start .. ' ' .. payload)`, ``},
	{"a suspect is taken twice", "exchange_queues", `call('LPOP', key)
      give`, `give`},
	{"a job that has come to its end is suspected", "exchange_finish", `dead.forget(prefix, e.queue, e.record.payload)`, ``},
	{"a job that goes to a line is lost", "exchange_lines", `pcall_('RPUSH', list, unpack(ends[name]))`, `#ends[name]`},
	{"a job that goes to a line stays in its queue", "exchange_lines", `if n.gone > 0 then call('LTRIM', key, n.gone, -1) end`, ``},
	{"a job that was served stays in its line", "exchange_lines", `call('LPOP', key)
    line.known.add`, `line.known.add`},
	{"a line is served though its lock is held", "exchange_lines", `elseif not take(lock, me .. asked[w][1]) and not line.known.claim(queue, name, me .. asked[w][1], ttl) then`, `elseif false then`},
	{"a line stays known that is empty", "exchange_lines", `if not payload or gone > 0 and not waiting[2] then line.known.finish(queue, name) end`, ``},
	{"a line is forgotten while a job waits in it", "exchange_lines", `gone > 0 and not waiting[2]`, `gone > 0`},
	{"delayed jobs of a list are copied", "move_due", `if #l.items > 0 then call('LTRIM', l.list, #l.items, -1) end`, ``},
	{"more run than a limit lets", "limit_together", `g.running + n <= g.most then`, `g.running + n <= g.most + 1 then`},
	{"a job that was taken stays a member", "unique", `call('SREM', key .. ':uniqueue', payload)`, ``},
	{"a job that has failed with its process leaves its count of deaths", "recover", `dead.forget(prefix, r.queue, r.payload)`, ``},
	{"jobs in lines are not counted", "lines", `if n ~= 0 then kept('HINCRBY', counts, queue, fmt('%d', n)) end`, ``},
	{"a start time stays when its job is taken", "unique", `match(removeat(key .. ':start_at', index, length) or '', '^%d+$')`, `match(call('LINDEX', key .. ':start_at', index) or '', '^%d+$')`},
}

func altered(m storetest.Mutant) func(c *rdb.Client) error {
	return func(c *rdb.Client) error { return storetest.Alter(c, m[1], m[2], m[3]) }
}

// patience is how many seeds may be needed to find a defect.
const patience = 60

// TestDefects finds seeded defects of the scripts: all of them nightly, otherwise and with the race detector the first.
func TestDefects(t *testing.T) {
	tried := defects
	if !testlevel.Nightly() || os.Getenv("RESQUED_TEST_RACE") != "" { // the detector sees as much with one
		tried = defects[:1]
	}
	for _, defect := range tried {
		t.Run(defect.Name(), func(t *testing.T) {
			for n := uint64(1); n <= patience; n++ {
				var r Result
				synctest.Test(t, func(*testing.T) { r = Run(n, Options{Alter: altered(defect)}) })
				if len(r.Errors) > 0 {
					require.NotContains(t, r.Errors[0], "ERR", "the defect has to be wrong, not nonsense")
					t.Logf("found by seed %d: %s", n, r.Errors[0])
					return
				}
			}
			t.Errorf("not found by %d seeds", patience)
		})
	}
}
