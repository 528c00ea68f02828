-- pause_run stops a run that waits or runs before its next unit, until resume. The run keeps its state.
--
-- KEYS[1]   resqued:longjob:run:<uuid>
-- ARGV[1]   prefix
-- ARGV[2]   uuid
-- ARGV[3]   the oldest format that the caller reads
-- ARGV[4]   the newest one
-- RETURNS   'PAUSED', also if it was; 'ENDING': the same, but a slice still runs; 'GONE'; 'UNREAD'
--           the caller does not read the run's format; or the status of a run that is over;
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 15 commands; O(1). With a tenant those of turn in longjob.

local prefix, id, ms = ARGV[1], ARGV[2], (now())
local v = call('HMGET', KEYS[1], 'status', 'owner', 'tenant', 'paused', 'format')
if not v[1] then return 'GONE' end
if unread(v[5], ARGV[3], ARGV[4]) then return 'UNREAD' end
if not active(v[1]) then return v[1] end
local runs = v[2] and v[2] ~= '' and recorded(prefix, v[2])
if not v[4] then
  needlong(prefix, id)
  needtenant(prefix, v[3])
  call('PERSIST', KEYS[1])
  call('HSET', KEYS[1], 'paused', fmt('%.0f', ms))
  if not runs and v[3] and v[3] ~= '' then
    -- The payload of a run in line is nowhere. Another run's is in a queue or delayed, and gives up its
    -- slice for now.
    if call('ZSCORE', linekey(prefix, v[3]), id) then
      park(prefix, id, v[3], ms)
    else
      giveup(prefix, v[3], id, ms)
    end
  end
end
return runs and 'ENDING' or 'PAUSED'
