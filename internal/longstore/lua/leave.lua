-- leave notes that a slice's code has ended after its run: another run of its tenant may have its turn.
--
-- KEYS[1]   resqued:longjob:run:<uuid>
-- ARGV[1]   prefix
-- ARGV[2]   uuid
-- ARGV[3]   proc
-- ARGV[4]   token
-- RETURNS   1; 0 without effect: the run has no tenant or continues, or the slice is not the
--           caller's; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 8 commands, and those of turn in longjob

local prefix, id = ARGV[1], ARGV[2]
local v = call('HMGET', KEYS[1], 'status', 'owner', 'tenant')
if not v[3] or active(v[1]) or v[2] ~= owner(ARGV[3], ARGV[4]) then return 0 end
needtenant(prefix, v[3])
local ms = now()
call('SREM', busykey(prefix, v[3]), id)
call('HSET', KEYS[1], 'owner', '')
giveup(prefix, v[3], id, ms)
return 1
