-- again continues a run from its last saved state, with a new slice number: a lost run, which no process runs
-- although one should, or a failed or cancelled one.
--
-- KEYS[1]   resqued:longjob:run:<uuid>
-- ARGV[1]   prefix
-- ARGV[2]   uuid
-- ARGV[3]   number of the current next slice
-- ARGV[4]   payload of the slice after it
-- ARGV[5]   1 the run is lost; else 0
-- ARGV[6]   the oldest format that the caller reads
-- ARGV[7]   the newest one
-- RETURNS   'QUEUED'; or why nothing was done: 'GONE', 'UNREAD' the caller does not read the run's
--           format, 'MOVED' another slice is next, 'ENDING' a slice runs, 'PAUSED' the run is
--           paused, and now parked, 'NEWER' a newer run of its kind waits or runs, or the status
--           that forbids it; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 25 commands; O(1). With a tenant those of turn in longjob.

local prefix, id, slice, payload, lost = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local ms = now()
local v = call('HMGET', KEYS[1], 'status', 'slice', 'owner', 'queue', 'kind', 'deaths', 'moved', 'class', 'tenant', 'format', 'paused', 'parked')
if not v[1] then return 'GONE' end
if unread(v[10], ARGV[6], ARGV[7]) then return 'UNREAD' end
if lost ~= active(v[1]) or v[1] == 'completed' or v[1] == 'superseded' then return v[1] end
if v[2] ~= slice then return 'MOVED' end
if v[3] ~= '' and recorded(prefix, v[3]) then return 'ENDING' end
if v[12] then
  call('PERSIST', KEYS[1]) -- a full server accepts this write, and then the others
  call('ZADD', activekey(prefix), '9000000000000000', id) -- a sweeper's look has changed it
  return 'PAUSED'
end
local newest = call('HGET', currentkey(prefix), v[5])
if newest and newest ~= id and active(call('HGET', runkey(prefix, newest), 'status')) then return 'NEWER' end
local before = newest and newest ~= id and behind(prefix, newest)
needlong(prefix, id, v[4])
needtenant(prefix, v[9])
call('PERSIST', KEYS[1])
local deaths = '0'
if lost and v[3] ~= '' then deaths = v[7] == '1' and '1' or fmt('%d', tonumber(v[6] or 0) + 1) end
local at = fmt('%.0f', ms)
call('HSET', KEYS[1], 'status', 'queued', 'slice', fmt('%.0f', tonumber(slice) + 1), 'owner', '', 'deaths', deaths, 'seen', at)
call('HDEL', KEYS[1], 'moved')
if before then call('HSET', KEYS[1], 'behind', before) end
if not lost then call('HDEL', KEYS[1], 'ended', 'error', 'failures') end
call('HSET', currentkey(prefix), v[5], id)
call('ZREM', endedkey(prefix), id)
call('ZADD', activekey(prefix), at, id)
ofsubject(prefix, id, v[8] or '', v[5])
if v[11] then
  park(prefix, id, v[9], ms)
  return 'PAUSED'
end
if v[9] and call('SISMEMBER', busykey(prefix, v[9]), id) == 1 then
  append(prefix, v[4], payload, ms) -- it still has its turn
else
  queueslice(prefix, id, v[9], v[4], payload, ms)
end
return 'QUEUED'
