-- classlock_refresh restarts the time of a class lock, only for its holder.
--
-- KEYS[1]   resqued:inflight:<proc>; elsewhere the lock
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   token
-- ARGV[4]   lock
-- ARGV[5]   timeout (ms, 0 none)
-- ARGV[6]   TTL of the key (s)
-- ARGV[7]   elsewhere: 1 in another Redis than the daemon's, else 0
-- RETURNS   {'FENCED'} the process has no valid lease, or it is not yet known whether it has lost
--           the lock (see grace); {'LOST', value in its place or ''} the lock is gone or
--           another holder's; {'OK', value}
-- COST      at most 8 commands; O(1)

local prefix, proc, token, lock = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local timeout, ttl, elsewhere = tonumber(ARGV[5]), ARGV[6], ARGV[7] == '1'
local ms = now()

if not elsewhere then
  local lease = tonumber(query('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
  if not lease or lease < ms then return {'FENCED'} end
end
local value = pcall_('GET', lock)
if not value and not elsewhere and pcall_('ZCARD', prefix .. 'resqued:relock') ~= 0 then return {'FENCED'} end
if type(value) ~= 'string' then return {'LOST', ''} end
local name = owner(proc, token)
if nameof(value) ~= name or not elsewhere and pcall_('HEXISTS', KEYS[1], token) ~= 1 then
  return {'LOST', value}
end
value = classvalue(ms, timeout, name)
call('EXPIRE', lock, ttl) -- see register: a full server must not reject the rest
call('SET', lock, value, 'EX', ttl)
if not elsewhere then call('HSET', prefix .. 'resqued:held:' .. proc, token, held_pack(lock, value)) end
return {'OK', value}
