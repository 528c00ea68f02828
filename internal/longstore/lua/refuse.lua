-- refuse notes, for people, that a program took a slice whose class it does not know. The slice returns to its
-- queue, for a program that does.
--
-- KEYS[1]   resqued:longjob:run:<uuid>
-- ARGV[1]   prefix
-- ARGV[2]   uuid
-- ARGV[3]   number of the slice
-- ARGV[4]   class
-- ARGV[5]   proc
-- ARGV[6]   token
-- ARGV[7]   the oldest format that the caller reads
-- ARGV[8]   the newest one
-- RETURNS   'OK'; 'NONE' no such run of that class; or why the payload is void: 'OVER', 'STALE'
--           another slice is next, 'BUSY' another process runs it; error NOPERM: nothing was done
-- COST      5 commands; O(1). With a tenant those of needtenant in longjob.

local prefix, id, ms = ARGV[1], ARGV[2], (now())
local v = query('HMGET', KEYS[1], 'status', 'slice', 'class', 'owner', 'refused', 'format', 'tenant')
if type(v) ~= 'table' or v.err or not v[1] or v[3] ~= ARGV[4] then return 'NONE' end
if not active(v[1]) then return 'OVER' end
if v[2] ~= ARGV[3] then return 'STALE' end
local me = owner(ARGV[5], ARGV[6])
if v[4] and v[4] ~= '' and v[4] ~= me and recorded(prefix, v[4]) then return 'BUSY' end
if unread(v[6], ARGV[7], ARGV[8]) then return 'OK' end
if v[7] then
  -- It may wait for some time: no slice must step back for it.
  needtenant(prefix, v[7])
  call('ZREM', hungrykey(prefix), v[7])
end
call('HSET', KEYS[1], 'refused', fmt('%.0f', (tonumber(v[5]) or 0) + 1), 'refuser', ARGV[5], 'refused_at', fmt('%.0f', ms))
return 'OK'
