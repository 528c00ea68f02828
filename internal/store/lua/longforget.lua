-- longforget removes runs that have ended long enough ago, and named locks whose holders
-- are gone.
--
-- KEYS[1] resqued:longjob:ended
-- ARGV    prefix, how many at most
-- RETURNS how many runs were removed

local prefix, ms = ARGV[1], (now())
local ids = call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt('%.0f', ms), 'LIMIT', 0, tonumber(ARGV[2]))
for _, id in ipairs(ids) do
  needlong(prefix, id)
  local kind = call('HGET', runkey(prefix, id), 'kind')
  if kind and call('HGET', currentkey(prefix), kind) == id then call('HDEL', currentkey(prefix), kind) end
  call('DEL', runkey(prefix, id), statekey(prefix, id))
  call('ZREM', KEYS[1], id)
end
local locks = prefix .. 'resqued:longjob:locks'
local held = query('HGETALL', locks)
for i = 1, #held, 2 do
  if not recorded(prefix, held[i + 1]) then call('HDEL', locks, held[i]) end
end
return #ids
