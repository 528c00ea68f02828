-- longforget removes runs that have ended long enough ago, and named locks whose holders
-- are gone.
--
-- KEYS[1] resqued:longjob:ended
-- ARGV    prefix, how many at most
-- RETURNS how many runs were removed

local prefix, ms = ARGV[1], (now())
local current, locks = currentkey(prefix), prefix .. 'resqued:longjob:locks'
local ids = call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt('%.0f', ms), 'LIMIT', 0, tonumber(ARGV[2]))
local held = query('HGETALL', locks) -- all that may be refused comes before what is removed
needhash(current)
need(current, 'HGET', 'HDEL')
need(KEYS[1], 'ZREM')
need(locks, 'HDEL')
need(prefix .. 'resqued:inflight:', 'HEXISTS')
for _, id in ipairs(ids) do need(runkey(prefix, id), 'HGET', 'DEL') end
for _, id in ipairs(ids) do
  local kind = query('HGET', runkey(prefix, id), 'kind') -- one that is no hash must not stand in the way of the others
  if type(kind) == 'string' and call('HGET', current, kind) == id then call('HDEL', current, kind) end
  call('DEL', runkey(prefix, id), statekey(prefix, id))
  call('ZREM', KEYS[1], id)
end
for i = 1, #held, 2 do
  if not recorded(prefix, held[i + 1]) then call('HDEL', locks, held[i]) end
end
return #ids
