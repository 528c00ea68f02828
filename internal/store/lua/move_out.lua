-- move_out takes payloads, compared byte by byte, from a part of a queue or of one of its lines, and sets them
-- aside as a numbered batch on its way to another store. A queue has one batch under way at a time: while there
-- is one, it is returned, and nothing is taken.
--
-- KEYS[1]   queue:<q>, or the line
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   the other store's id
-- ARGV[4]   its name for people
-- ARGV[5]   an id for this store, if it has none yet
-- ARGV[6]   the least number for a batch that now has the number after this
-- ARGV[7]   that number: any other batch keeps its own, which another caller may have delivered
-- ARGV[8]   index of the first payload read
-- ARGV[9]   n, the number of payloads read from there
-- ARGV[10]  '' or l and the name of the line, t and the place of a tenant
-- ARGV[11…] the payloads to take; none = only return the batch under way
-- RETURNS   {id of this store, number, id of the other store, its name for people, payload, …}; the
--           number is 0 if nothing is under way; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 12 commands and 2 per payload; O(n), plus the way to them from the nearer end of
--           the queue

local key, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local at, count, least = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[6])
local moving, aside = prefix .. 'resqued:moving', prefix .. 'resqued:moving:' .. queue
local n, staged = len(key), len(aside)
if not n or not staged then
  return redis.error_reply('RESQUEDTYPE ' .. (n and aside or key) .. ' is not a list; move it away')
end
local known = query('HMGET', moving, 'id', 'n:' .. queue, 'to:' .. queue, 'where:' .. queue)
if known.err then return redis.error_reply('RESQUEDTYPE ' .. moving .. ' is not a hash; move it away') end

local function answer(id, number, to, where)
  local reply = {id, number, to, where}
  for _, payload in ipairs(call('LRANGE', aside, 0, -1)) do reply[#reply + 1] = payload end
  return reply
end

local number = tonumber(known[2]) or 0
if staged > 0 then
  if number < least and number == tonumber(ARGV[7]) then
    number = least
    call('HSET', moving, 'n:' .. queue, fmt('%.0f', number))
  end
  return answer(known[1], number, known[3] or '', known[4] or '')
end
local home = prefix .. 'queue:' .. queue
if #ARGV < 11 or call('EXISTS', home .. ':uniqueue', home .. ':start_at') > 0 then return {known[1] or '', 0, '', ''} end

local places = {} -- payload → how many arguments ask for it
for i = 11, #ARGV do places[ARGV[i]] = (places[ARGV[i]] or 0) + 1 end
-- Removals since the read have moved the rest toward the head.
local first = math.max(0, at - math.min(200, count))
local taken, indexes = {}, {}
for i, payload in ipairs(call('LRANGE', key, first, at + count - 1)) do
  local left = places[payload] or 0
  if left > 0 then
    places[payload] = left - 1
    taken[#taken + 1], indexes[#indexes + 1] = payload, first + i - 1
  end
end
local id = known[1] or ARGV[5]
if #taken == 0 then return {id, 0, '', ''} end

number = number + 1
forget_seen(prefix, queue) -- also the first write, after which a full server accepts the rest
call('HSET', moving, 'id', id, 'n:' .. queue, fmt('%.0f', number), 'to:' .. queue, ARGV[3], 'where:' .. queue, ARGV[4])
local hole = '\0' .. redis.sha1hex(prefix .. queue .. at)
for i, payload in ipairs(taken) do
  call('RPUSH', aside, payload)
  call('LSET', key, indexes[i], hole)
end
call('LREM', key, first < n / 2 and #taken or -#taken, hole)
if ARGV[10] ~= '' then lines(prefix).less(queue, ARGV[10], #taken) end
-- A suspect, which stays, may equal one of them and share its count.
if len(prefix .. 'resqued:suspects:' .. queue) == 0 and pcall_('EXISTS', (dead.keys(prefix, queue))) == 1 then
  for _, payload in ipairs(taken) do dead.forget(prefix, queue, payload) end
end
return answer(id, number, ARGV[3], ARGV[4])
