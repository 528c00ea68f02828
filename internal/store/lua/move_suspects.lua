-- move_suspects moves quarantined jobs of a queue behind those of another queue, with their death counts and loner
-- markers.
--
-- KEYS[1]   resqued:suspects:<from>
-- ARGV[1]   prefix
-- ARGV[2]   from
-- ARGV[3]   to, another queue
-- ARGV[4…]  per job to move: the element of the list, the key of its loner marker or ''
-- RETURNS   how many were moved, without those no longer there; error RESQUEDTYPE or NOPERM: nothing
--           was done
-- COST      about 6 commands, and up to 13 per job; O(n), and the length of the list for each

local key, prefix, from, to = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local target, names = apartkey(prefix, to), prefix .. 'resqued:suspects'
local n = len(key)
if not n or not len(target) then
  return redis.error_reply('RESQUEDTYPE ' .. (n and target or key) .. ' is not a list; move it away')
end
for _, set in ipairs({names, prefix .. 'queues'}) do
  if type(query('SCARD', set)) ~= 'number' then
    return redis.error_reply('RESQUEDTYPE ' .. set .. ' is not a set; move it away')
  end
end
if n == 0 then return apart(prefix, from) end -- this also tidies up
local ms, moved = now(), 0

call('PERSIST', key) -- a full server must not reject the rest
call('SADD', names, to)
call('SADD', prefix .. 'queues', to)
for i = 4, #ARGV, 2 do
  local element, marker = ARGV[i], ARGV[i + 1]
  if call('LREM', key, 1, element) == 1 then
    moved = moved + 1
    call('RPUSH', target, element)
    local payload = suspect(element)
    local deaths, blame = dead.of(prefix, from, payload)
    if deaths > 0 then
      local d, b = dead.of(prefix, to, payload)
      dead.note(prefix, to, payload, math.max(deaths, d), math.max(blame, b), ms)
      dead.forget(prefix, from, payload)
    end
    if marker ~= '' then remark(marker, from, to, payload) end
  end
end
apart(prefix, to)
apart(prefix, from)
return moved
