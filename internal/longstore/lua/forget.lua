-- forget removes runs that ended long enough ago, and named locks without a holder.
--
-- KEYS[1]   resqued:longjob:ended
-- ARGV[1]   prefix
-- ARGV[2]   n, the most runs to remove
-- RETURNS   how many runs were removed; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      5 commands, 6 per run, 1 or 2 per named lock; O(n), and at most 1,000 locks or so

local prefix = ARGV[1]
local ms, us = now()
local current, locks = currentkey(prefix), prefix .. 'resqued:longjob:locks'
local ids = call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt('%.0f', ms), 'LIMIT', 0, tonumber(ARGV[2]))
-- Commands that may be refused come before removals. Of very many locks, each call checks a different part.
local many, held = query('HLEN', locks) > 1000, nil
if many then held = call('HSCAN', locks, fmt('%.0f', us % 2 ^ 30), 'COUNT', 1000)[2] else held = call('HGETALL', locks) end
needhash(current)
for _, id in ipairs(ids) do
  local kind = query('HGET', runkey(prefix, id), 'kind') -- a key of another type must not block the other runs
  if type(kind) == 'string' and call('HGET', current, kind) == id then call('HDEL', current, kind) end
  call('DEL', runkey(prefix, id), statekey(prefix, id))
  pcall_('DEL', sliceskey(prefix, id))
  call('ZREM', KEYS[1], id)
end
for i = 1, #held, 2 do
  if not recorded(prefix, held[i + 1]) then call('HDEL', locks, held[i]) end
end
return #ids
