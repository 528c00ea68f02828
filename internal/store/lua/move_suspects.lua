-- move_suspects moves jobs that wait beside a queue to run alone to where those of another queue
-- wait, behind them, with the counts of their deaths.
--
-- KEYS[1]   resqued:suspects:<from>
-- ARGV[1]   prefix
-- ARGV[2]   from
-- ARGV[3]   to, another queue
-- ARGV[4]   n, how many at most
-- RETURNS   how many were moved; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 6 commands, and up to 10 per job; O(n)

local key, prefix, from, to, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local target, names = apartkey(prefix, to), prefix .. 'resqued:suspects'
local n = len(key)
if not n or not len(target) then
  return redis.error_reply('RESQUEDTYPE ' .. (n and target or key) .. ' is no list; move it away')
end
for _, set in ipairs({names, prefix .. 'queues'}) do
  if type(query('SCARD', set)) ~= 'number' then
    return redis.error_reply('RESQUEDTYPE ' .. set .. ' is no set; move it away')
  end
end
needlist(key)
need(target, 'RPUSH')
need(names, 'SADD')
need(prefix .. 'queues', 'SADD')
if n == 0 then return apart(prefix, from) end -- which tidies up
local ms = now()

call('PERSIST', key) -- a full server must not refuse the rest
call('SADD', names, to)
call('SADD', prefix .. 'queues', to)
local moved = call('LRANGE', key, 0, most - 1)
for _, element in ipairs(moved) do
  local payload = suspect(element)
  call('RPUSH', target, element)
  call('LPOP', key)
  local deaths, blame = dead.of(prefix, from, payload)
  if deaths > 0 then
    local d, b = dead.of(prefix, to, payload)
    dead.note(prefix, to, payload, math.max(deaths, d), math.max(blame, b), ms)
    dead.forget(prefix, from, payload)
  end
end
apart(prefix, from)
return #moved
