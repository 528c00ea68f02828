package store_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/storetest"
)

// mutants are defects of the scripts, each of which breaks one promise. What is
// replaced must be there once, so that the table follows the scripts.
var mutants = []storetest.Mutant{
	{"a lock is released whoever holds it", "base", `pcall_('GET', lock) == value then call('DEL', lock)`, `pcall_('GET', lock) then call('DEL', lock)`},
	{"a lock that is held is taken over", "records", `return lease ~= '0' or pcall_('PTTL', lock) ~= -1`, `return false`},
	{"a foreign lock is taken over", "records", `if not p then return true end`, `if not p then return false end`},
	{"a lock without a record stays in the way", "records", `p, t) == 0 then return false end`, `p, t) == 0 then return true end`},
	{"a lock is taken without a look", "exchange_locks", `'NX', 'EX', seconds or ttl`, `'EX', seconds or ttl`},
	{"a lock has no time to live", "exchange_locks", `'NX', 'EX', seconds or ttl`, `'NX'`},
	{"a lock is taken without a look, fast path", "exchange_take", `'NX', 'EX', ttl`, `'EX', ttl`},
	{"a lock has no time to live, fast path", "exchange_take", `'NX', 'EX', ttl`, `'NX'`},
	{"locks are taken together without a look", "exchange_take", `call('MSETNX', unpack(set)) == 1`, `not call('MSET', unpack(set)).err`},
	{"jobs with one lock are taken together", "exchange_take", `if met[lock] then together = false end`, ``},
	{"a lock is not released", "exchange_finish", `release(lock, me .. token)`, ``},
	{"a lock is not released, fast path", "exchange_first", `call('DEL', lock)
    released.kept = false`, `released.kept = false`},
	{"locks are released whoever holds them", "exchange_plain", `if values[c] ~= me .. ARGV[plainat + c - 1] then`, `if false then`},
	{"many locks are not released", "exchange_plain", `call('DEL', unpack(ARGV, locksat, othersat - 1))`, ``},
	{"a lock stays when its process is recovered", "recover", `release(r.lock, owner(proc, token))`, ``},
	{"names from Go are ignored", "exchange_wants", `return locknames[queue .. '\0' .. redis.sha1hex(payload)]`, ``},
	{"arguments with other white space are others", "payload", `if spaced then rest = squeeze(rest) end`, ``},
	{"arguments with other escapes are others", "payload", `unescape(rest)`, `rest`},
	{"an Active Job is not looked into", "payload", `if own then return own`, `if false then return own`},

	{"a completion is applied again", "exchange_finish", `if call('HDEL', inflight, e.token) == 0 then`, `if call('HDEL', inflight, e.token) == 2 then`},
	{"a completion leaves the record", "exchange_finish", `if call('HDEL', inflight, e.token) == 0 then`, `if call('HEXISTS', inflight, e.token) == 0 then`},
	{"a completion is applied again, fast path", "exchange_plain", `if there[token] == c then`, `if true then`},
	{"completions are applied again", "exchange_plain", `then there[token] = c else alltold = false end
    end
    call('HDEL'`, `then there[token] = c end
    end
    call('HDEL'`},
	{"a completion leaves the record, fast path", "exchange_plain", `size = query('HDEL', inflight, unpack(ARGV, plainat, plainat + nready - 1))`, `size = nready`},
	{"completions leave the records", "exchange_plain", `call('HDEL', inflight, unpack(ARGV, plainat, plainat + nready - 1))`, ``},
	{"a repeated request takes jobs again", "exchange_wants", `local mine = again and call(`, `local mine = false and call(`},
	{"a repetition in one lane stops the other", "exchange_plain", `lane == '0' and 'repeated' or 'repeated1'`, `'repeated'`},
	{"a request that comes late takes jobs", "exchange_plain", `> tonumber(sending) then`, `> tonumber(sending) + 19 then`},
	{"a fenced process is served", "exchange_fast", `if type(lease) ~= 'string' or #lease ~= #least or lease < least then`, `if false then`},
	{"a fenced process beats", "beat", `if not lasts or lasts == 0 then return {'FENCED'} end`, ``},
	{"a living process is fenced", "fence", `if not force and lease >= ms then`, `if false then`},
	{"a fenced process buries a job", "recover", `if alive ~= own then`, `if alive and not own then`},
	{"a living process is recovered", "recover", `if alive ~= own then`, `if own and not alive then`},
	{"a record is recovered again", "recover", `call('HDEL', KEYS[1], token)`, ``},
	{"a lost lock is not told", "beat", `if not whole then lost[#lost + 1] = token end`, ``},
	{"a beat extends no lock", "beat", `call('EXPIRE', key, ttl)`, ``},

	{"the fence starts again where Redis forgot it", "base", `if fence < us then fence = us end`, ``},
	{"what was set aside of the fence is not kept", "base", `if fence > us then call(`, `if false then call(`},

	{"a job that was taken stays in its queue", "exchange_take", `call('LTRIM', key, fmt('%d', n), '-1')`, ``},
	{"a job that was taken has no record", "exchange_take", `if 2 * w - 2 > written then call('HSET', inflight, unpack(fields, written + 1, 2 * w - 2)) end`, ``},
	{"a locked job is dropped, fast path", "exchange_take", `call('LPUSH', key, popped)`, ``},
	{"a locked job is dropped", "exchange_reserve", `call('RPUSH', q.key, payload)`, ``},
	{"a locked job is written anew", "exchange_reserve", `call('RPUSH', q.key, payload)`, `call('RPUSH', q.key, squeeze(payload))`},
	{"a cap is not given back", "exchange_finish", `uncap(prefix, master, e.queue)`, ``},
	{"a cap is not given back by the dead", "recover", `uncap(prefix, r.cap, r.queue)`, ``},
	{"class locks stay when a job ends", "exchange_finish", `drop_held(prefix, proc, e.token)`, ``},
	{"class locks stay when a process is recovered", "recover", `drop_held(prefix, proc, token)`, ``},

	{"delayed jobs are copied", "move_due", `call('ZREM', own, member)`, ``},
	{"delayed jobs of a list are copied", "move_due", `if #l.items > 0 then call('LTRIM', l.list, #l.items, -1) end`, ``},
	{"a delayed job is lost where it stands", "move_due", `if #tail == 100 then flush(queue) end`, `if #tail == 2 then tails[queue] = nil end`},
	{"delayed jobs are moved early", "move_due", `call('ZRANGEBYSCORE', schedule, '-inf', fmt('%.0f', sec)`, `call('ZRANGEBYSCORE', schedule, '-inf', '+inf'`},
	{"an empty list of delayed jobs stays", "move_due", `if l.all and not kept then call('ZREM', schedule, l.at) end`, ``},
	{"where a delayed job waited is not forgotten", "move_due", `pcall_('SREM', prefix .. 'timestamps:' .. item, 'delayed:' .. l.at)`, ``},
	{"a delayed job is put beside its equal", "move_due", `if unique[queue] then
    if not putback`, `if false then
    if not putback`},
	{"what others would write anew waits where they may", "delay", `if closing(payload, i) ~= #payload - 1 or byte(payload, #payload) ~= 125 then return nil end`, `payload = '{"class":"A","args":' .. sub(payload, i, closing(payload, i)) .. '}'`},
	{"a list of delayed jobs is not known", "delay", `call('ZADD', prefix .. 'delayed_queue_schedule', at, at)`, ``},

	{"a job that runs again is not counted", "exchange_finish", `if e.kind == 't' and not parks then ends.keep_count(e.count, e.text, e.pause) end`, ``},
	{"a count stays when its job has ended", "exchange_finish", `if e.count and e.kind ~= 't' then ends.forget_count(e.count) end`, ``},
	{"a count stays when its job has failed with its process", "recover", `pcall_('DEL', prefix .. key)`, ``},
	{"a count has no end", "exchange_finish", `count.value, 'EX', count.ttl)`, `count.value)`},
	{"a job that runs again is lost", "exchange_finish", `if not record then return '1' end`, `if not record or e.kind == 't' then return '1' end`},
	{"a job that runs again is written anew", "exchange_finish", `delay(prefix, e.queue, record.payload, start`, `delay(prefix, e.queue, squeeze(record.payload), start`},

	{"suspects run beside others", "exchange_reserve", `if blame > 0 and onsuspects == 'a' then`, `if false then`},
	{"suspects are taken on the fast path", "exchange_start", `{deathkey, counters, prefix`, `{counters, counters, prefix`},
	{"a job that has died is taken on the fast path", "exchange_take", `elseif died[i] then`, `elseif false then`},
	{"a lock is kept for another suspect", "exchange_locks", `take(lock, 'suspect:' .. id, seconds)`, `take(lock, 'suspect:' .. redis.sha1hex(id), seconds)`},
	{"what is kept for a suspect is any suspect's", "exchange_locks", `if pcall_('GET', lock) ~= 'suspect:' .. redis.sha1hex(payload) then`, `if pcall_('GET', lock) == 'x' then`},
	{"nobody is suspected", "recover", `(suspect and 1 or 0)`, `0`},
	{"a suspect is lost", "suspects", `call('RPUSH', apartkey(prefix, queue), start .. ' ' .. payload)`, ``},
	{"a newer job that was taken stays in its queue", "exchange_reserve", `call('LSET', q.key, index, q.hole)`, ``},
	{"a newer job that was taken leaves a hole", "exchange_reserve", `call('LREM', q.key, index < q.newer + q.put + q.holes and q.holes or -q.holes, q.hole)`, ``},
	{"a newer job is passed by", "exchange_reserve", `    else
      index = index + 1`, `    else
      index = index + 2`},
	{"a suspect is taken twice", "exchange_queues", `call('LPOP', key)
      give`, `give`},
	{"a suspect stays a member", "exchange_reserve", `set_apart(prefix, q.queue, payload, looks.out(q, index, popped, head, payload))`, `if not popped then removeat(q.key, index, q.left) end
    set_apart(prefix, q.queue, payload, '-')`},
	{"a job that has come to its end is suspected", "exchange_finish", `dead.forget(prefix, e.queue, e.record.payload)`, ``},
	{"a purge leaves counts of deaths", "remove_queue", `dead.forgetall(prefix, queue)`, ``},
	{"a dequeued job leaves its count of deaths", "dequeue", `t.forget(f)`, ``},
	{"a job that has failed with its process leaves its count of deaths", "recover", `dead.forget(prefix, r.queue, r.payload)`, ``},

	{"a released lock is not told to those who wait", "exchange_finish", `freed(prefix, released, ms)`, ``},
	{"a released lock is not told, fast path", "exchange_start", `{deathkey, counters, prefix`, `{deathkey, deathkey, prefix`},
	{"one job too many counts as locked", "exchange_reserve", `math.min(s.count + q.looked, s.mark)`, `math.min(s.count + q.looked + 1, s.mark)`},
	{"newer jobs count as seen", "exchange_reserve", `q.newer, q.unseen = left - q.known.mark,`, `q.newer, q.unseen = 0,`},
	{"a queue counts as blocked though its lock is free", "blocked_queues", `if not held(prefix, lock) then`, `if false then`},
	{"a released lock does not count as open", "blocked_queues", `pcall_('SADD', open, lock)`, ``},
	{"one lock that is open is not looked for", "exchange_reserve", `if q.before and q.known.known and q.nopen == 0 then`, `if q.before and q.known.known and q.nopen <= 1 then`},
	{"the search ends with the first lock that is taken", "exchange_reserve", `if q.known.known and q.nopen == 0 then q.unseen = 0 end
end`, `q.unseen = 0
end`},
	{"a round that was cut short counts as whole", "exchange_reserve", `if q.unseen <= 0 then
      -- A`, `if q.unseen <= 1 then
      -- A`},
	{"what was released during a first look is forgotten", "exchange_reserve", `(q.nopen > 0 or q.opened) and 0 or s.mark`, `s.mark`},

	{"a job that goes to a line is lost", "exchange_lines", `pcall_('RPUSH', list, unpack(ends[name]))`, `#ends[name]`},
	{"a job that goes to a line stays in its queue", "exchange_lines", `if n.gone > 0 then call('LTRIM', key, n.gone, -1) end`, ``},
	{"a job that was served stays in its line", "exchange_lines", `call('LPOP', key)
    line.known.add`, `line.known.add`},
	{"a line is served though its lock is held", "exchange_lines", `elseif not take(lock, me .. asked[w][1]) and not line.known.claim(queue, name, me .. asked[w][1], ttl) then`, `elseif false then`},
	{"a line is not told that its lock is free", "exchange_finish", `line.known.freed(released, us, alltold and #released == nlocks and obstacles.some)`, ``},
	{"a line is not told that the lock of a dead process is free", "recover", `inline.freed(released, us)`, ``},
	{"only one of the queues that wait for a lock is told", "lines", `fn(sub(text, at, i - 1))`, `fn(sub(text, at, i - 1))
      return`},
	{"a second queue that waits for a lock is not noted", "lines", `others(queue, name) .. fmt('%d ', #queue) .. queue)`, `fmt('%d ', #queue) .. queue)`},
	{"a lock is kept for a queue without an end", "line_locks", `'NX', 'EX', hold)`, `'NX')`},
	{"what is kept for a queue is any queue's", "line_locks", `~= 'line:' .. queue then return false end`, `== 'x' then return false end`},
	{"a line stays known that is empty", "exchange_lines", `if not payload or gone > 0 and not waiting[2] then line.known.finish(queue, name) end`, ``},
	{"a line is forgotten while a job waits in it", "exchange_lines", `gone > 0 and not waiting[2]`, `gone > 0`},
	{"a line that was emptied by others stays known", "lines", `if pcall_('EXISTS', l.list(queue, name)) == 0 then l.finish(queue, name) end`, ``},
	{"jobs in lines are not counted", "lines", `if n ~= 0 then kept('HINCRBY', counts, queue, fmt('%d', n)) end`, ``},
	{"a lock of a line that expires is not noticed", "line_locks", `elseif not values[i] and call('EXISTS', keys[i]) == 0 then`, `elseif false then`},
	{"a lock of a line without a record is not noticed", "line_locks", `if not there[k] or lease == '0' and not held(prefix, keys[i]) then free(i) end`, ``},
	{"suspects in lines run beside others", "exchange_lines", `elseif blamed then
    set_apart`, `elseif false then
    set_apart`},
	{"a full server does not notice that a line may be served", "line_locks", `if not noted then pcall_('PERSIST', ready) end`, ``},
	{"a loner is not seen in a line", "classlock", `or inline(prefix, queue, payload) or`, `or`},
	{"a paused queue's lines are served", "exchange_queues", `if line.known and not relock and not line.paused(i) then`, `if line.known and not relock then`},

	{"a pause of everything is not seen, fast path", "exchange_start", `prefix .. 'pause:all', prefix .. 'pause-all-workers',`, `counters, counters,`},
	{"queues are left out though they hold jobs", "exchange_first", `prefix .. 'queue:' .. names[i] end
  for`, `prefix .. 'queue:' end
  for`},
	{"a pause is not seen, fast path", "exchange_first", `for i = empty + 1, n do obstacles[6 + i] = prefix .. 'pause:queue:' .. names[i] end`, ``},
	{"a pause is not seen", "exchange_queues", `elseif not enough and not line.paused(i) then`, `elseif not enough then`},
	{"a pause of everything is not seen", "exchange_queues", `if not obstacles.calm and w <= #asked and pausing(prefix) then nqueue = 0 end`, ``},
	{"paused queues are polled", "poll", `if not (free and everything == false or worked(queue)) then`, `if false then`},
	{"any word pauses Resque's workers", "pause", `== 'true'`, `~= ''`},

	{"a job that was taken stays a member", "unique", `call('SREM', key .. ':uniqueue', payload)`, ``},
	{"a start time stays when its job is taken", "unique", `match(removeat(key .. ':start_at', index, length) or '', '^%d+$')`, `match(call('LINDEX', key .. ':start_at', index) or '', '^%d+$')`},
	{"a locked job leaves its start time behind", "exchange_reserve", `if q.unique then rotated(q.key) end`, ``},
	{"an equal job is put beside the one that waits", "unique", `if start ~= '-' then return upush(key, payload, start, head, true) ~= nil end`, ``},
	{"a member without a job is in the way", "unique", `if n <= near then there = found(key, payload, n, near) end`, ``},

	{"a class lock of somebody is taken over", "classlock", `return not expired(value, ms) and value or nil`, `return nil`},
	{"a class lock without a record stays in the way", "classlock", `== 0 then return nil end`, `== 0 then return value end`},
	{"a lost class lock is refreshed", "classlock_refresh", `if nameof(value) ~= name or `, `if `},
	{"a loner does not see its marker", "enqueue_loner", `if marked(prefix, marker, ms, elsewhere) then return {'DUPLICATE'} end`, ``},
	{"a loner does not see who runs", "enqueue_loner", `if value then return {'LOCKED', value} end`, ``},
	{"a marker without a job stays in the way", "classlock", `if not n or elsewhere then return true end`, `if true then return true end`},
	{"the marker of another job is removed", "classlock", `if match(value, '^%w+:queue:') and nameof(value) ~= name then return false end`, ``},

	{"a full server takes no process back", "register", `call('PERSIST', KEYS[1])`, ``},
	{"a full server gives no jobs behind locked ones", "exchange_reserve", `if not q.direct or q.newer > 0 then call('PERSIST', info) end`, `if not q.direct then call('PERSIST', info) end`},
}

// shortcuts are sequences that find what the first few do not; they come first. When the
// model or the scripts change, others may be the first to find it: a test that has become
// slow says which, with -v.
var shortcuts = map[string]int{
	"locks are released whoever holds them":                             815,
	"a locked job is dropped, fast path":                                628,
	"a queue out of step goes by its set":                               196,
	"a member is believed where a job is lost by it":                    34,
	"a lock of a line without a record is not noticed":                  560,
	"a job that has failed with its process leaves its count of deaths": 413,
	"a loner is not seen in a line":                                     406,
	"suspects in lines run beside others":                               402,
	"a paused queue's lines are served":                                 329,
	"a lost class lock is refreshed":                                    270,
	"a pause of everything is not seen, fast path":                      228,
	"a full server does not notice that a line may be served":           217,
	"a fenced process buries a job":                                     196,
	"suspects are taken on the fast path":                               116,
	"a job that has died is taken on the fast path":                     116,
	"a class lock of somebody is taken over":                            107,
	"a pause is not seen, fast path":                                    98,
	"a loner does not see its marker":                                   69,
	"a full server takes no process back":                               62,
	"a line is not told that the lock of a dead process is free":        58,
	"a time stays of a job that was dropped":                            53,
	"a lock of a line that expires is not noticed":                      47,
	"a lock is released whoever holds it":                               36,
	"a suspect stays a member":                                          34,
	"a class lock without a record stays in the way":                    33,
	"a lock without a record stays in the way":                          32,
	"a repetition in one lane stops the other":                          30,
	"any word pauses Resque's workers":                                  30,
	"a lock is taken without a look, fast path":                         28,
	"a released lock is not told, fast path":                            28,
	"a full server gives no jobs behind locked ones":                    22,
	"a lost lock is not told":                                           19,
	"the fence starts again where Redis forgot it":                      19,
	"what was dropped leaves a hole":                                    39,
	"a line that was emptied by others stays known":                     18,
	"a lock has no time to live, fast path":                             16,
	"a cap is not given back by the dead":                               12,
	"delayed jobs are moved early":                                      12,
	"a count stays when its job has failed with its process":            12,
	"nobody is suspected":                                               12,
	"a suspect is lost":                                                 12,
	"a suspect is taken twice":                                          12,
	"what was released during a first look is forgotten":                12,
	"a pause is not seen":                                               12,
	"a pause of everything is not seen":                                 12,
	"a delayed job is lost where it stands":                             11,
	"a newer job is passed by":                                          11,
	"the search ends with the first lock that is taken":                 11,
	"a job that was taken stays in its queue":                           10,
	"a job that was taken has no record":                                10,
	"a completion is applied again, fast path":                          9,
	"completions are applied again":                                     9,
	"a request that comes late takes jobs":                              9,
	"queues are left out though they hold jobs":                         9,
	"the marker of another job is removed":                              9,
	"a job that has come to its end is suspected":                       7,
}

// TestModelFindsDefects runs the model on scripts with a defect each, and wants it to
// fail.
func TestModelFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: mutants, Prepare: storetest.OnRig(sequence), Shortcuts: shortcuts}
	defects.Find(t)
}

// TestShortcuts: each leads to a defect.
func TestShortcuts(t *testing.T) {
	t.Parallel()
	var names []string
	for _, m := range slices.Concat(mutants, uniqueMutants) {
		names = append(names, m.Name())
	}
	require.Subset(t, names, slices.Collect(maps.Keys(shortcuts)))
	for name, seed := range shortcuts {
		require.Less(t, seed, storetest.Sequences, name)
	}
}
