-- cancel ends a run for good. A running slice notices when it cannot save any more.
--
-- KEYS[1]   resqued:longjob:run:<uuid>
-- ARGV[1]   prefix
-- ARGV[2]   uuid
-- ARGV[3]   how long the run is kept (ms)
-- RETURNS   'CANCELLED'; 'ENDING': cancelled, but a slice still runs; 'GONE'; or the status of a run
--           that had already ended; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 15 commands; O(1). With a tenant those of turn in longjob.

local prefix, id, ms = ARGV[1], ARGV[2], (now())
local v = call('HMGET', KEYS[1], 'status', 'owner', 'tenant')
if not v[1] then return 'GONE' end
if not active(v[1]) then return v[1] end
local runs = v[2] and v[2] ~= '' and recorded(prefix, v[2])
needlong(prefix, id)
needtenant(prefix, v[3])
call('PERSIST', KEYS[1])
endrun(prefix, id, 'cancelled', tonumber(ARGV[3]), ms)
return runs and 'ENDING' or 'CANCELLED'
