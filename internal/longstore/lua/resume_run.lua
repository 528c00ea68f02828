-- resume_run continues a paused run.
--
-- KEYS[1]   resqued:longjob:run:<uuid>
-- ARGV[1]   prefix
-- ARGV[2]   uuid
-- ARGV[3]   number of the current next slice
-- ARGV[4]   payload of the slice after it
-- ARGV[5]   the oldest format that the caller reads
-- ARGV[6]   the newest one
-- RETURNS   'RESUMED'; or why nothing was done: 'GONE', 'UNREAD' the caller does not read the run's
--           format, 'RUNS' it is not paused, 'MOVED' another slice is next, or the status of a run
--           that is over; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 20 commands; O(1). With a tenant those of turn in longjob.

local prefix, id, slice, payload, ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], (now())
local v = call('HMGET', KEYS[1], 'status', 'slice', 'queue', 'tenant', 'format', 'paused', 'parked')
if not v[1] then return 'GONE' end
if unread(v[5], ARGV[5], ARGV[6]) then return 'UNREAD' end
if not active(v[1]) then return v[1] end
if not v[6] then return 'RUNS' end
if v[2] ~= slice then return 'MOVED' end
needlong(prefix, id, v[7] and v[3] or nil)
if v[7] then needtenant(prefix, v[4]) end
call('PERSIST', KEYS[1])
call('HDEL', KEYS[1], 'paused', 'parked')
-- If it is not parked, its payload is still in a queue or will return to one.
if not v[7] then return 'RESUMED' end
-- A payload of the parked slice may still turn up, as its process may have died.
local at = fmt('%.0f', ms)
call('HSET', KEYS[1], 'slice', fmt('%.0f', tonumber(slice) + 1), 'seen', at)
call('ZADD', activekey(prefix), at, id)
queueslice(prefix, id, v[4], v[3], payload, ms)
return 'RESUMED'
