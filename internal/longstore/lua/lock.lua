-- lock takes or releases a named lock of long jobs. It is held while its holder's in-flight record exists, so
-- recovery, which takes the record, frees it.
--
-- KEYS[1]   resqued:longjob:locks
-- ARGV[1]   prefix
-- ARGV[2]   name of the lock
-- ARGV[3]   proc
-- ARGV[4]   token
-- ARGV[5]   1 to take the lock, 0 to release it
-- RETURNS   'OK'; 'HELD' by another holder; 'LOST' the caller's record is gone, or its process's
--           lease has expired
-- COST      at most 6 commands; O(1)

local prefix, name, proc, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local me, value = owner(proc, token), call('HGET', KEYS[1], name)
if ARGV[5] == '0' then
  if value == me then call('HDEL', KEYS[1], name) end
  return 'OK'
end
if value and value ~= me and recorded(prefix, value) then return 'HELD' end
if not recorded(prefix, me) or not leased(prefix, proc, (now())) then return 'LOST' end
call('HSET', KEYS[1], name, me)
return 'OK'
