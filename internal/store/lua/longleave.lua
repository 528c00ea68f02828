-- longleave is told by a slice that its code has ended, after its run was: another run of
-- its tenant may have its turn.
--
-- KEYS[1] resqued:longjob:run:<uuid>
-- ARGV    prefix, uuid, proc, token
-- RETURNS 1 if so, else 0

local prefix, id = ARGV[1], ARGV[2]
local v = call('HMGET', KEYS[1], 'status', 'owner', 'tenant')
if not v[3] or active(v[1]) or v[2] ~= owner(ARGV[3], ARGV[4]) then return 0 end
needtenant(prefix, v[3])
call('SREM', busykey(prefix, v[3]), id)
call('HSET', KEYS[1], 'owner', '')
giveup(prefix, v[3], id, (now()))
return 1
