-- dequeue removes payloads, compared byte by byte, from a part of a queue or of one of its lines. It updates a
-- unique queue's companions.
--
-- KEYS[1]   queue:<q>, or the line
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   index of the first payload read
-- ARGV[4]   n, the number of payloads read from there
-- ARGV[5]   '' or l and the name of the line, t and the place of a tenant
-- ARGV[6…]  the payloads to remove
-- RETURNS   a text of one digit per payload: 1 removed, 0 no longer there;
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 8 commands and up to 4 per removed payload; O(n), plus the way to them from the
--           nearer end of the queue

local key, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local from, count = tonumber(ARGV[3]), tonumber(ARGV[4])
local n = len(key)
if not n then return redis.error_reply('RESQUEDTYPE ' .. key .. ' is not a list; move it away') end
local set, starts = key .. ':uniqueue', key .. ':start_at'
local unique = ARGV[5] == '' and call('EXISTS', set, starts) > 0 -- a line has no companions, whatever its name
if unique and not utyped(key) then
  return redis.error_reply('RESQUEDTYPE ' .. set .. ' is not a set or ' .. starts .. ' no list; move it away')
end

local places = {} -- payload → indexes of the arguments that ask for it
for i = #ARGV, 6, -1 do
  local list = places[ARGV[i]] or {}
  list[#list + 1] = i - 5
  places[ARGV[i]] = list
end
local removed = {}
for i = 1, #ARGV - 5 do removed[i] = '0' end

forget_seen(prefix, queue) -- also the first write, after which a full server accepts the rest
local aligned = unique and call('LLEN', starts) == n
local hole, holes = '\0' .. redis.sha1hex(prefix .. queue .. from), 0
-- Removals since the read have moved the rest toward the head.
local first = math.max(0, from - math.min(200, count))
for i, payload in ipairs(call('LRANGE', key, first, from + count)) do
  local list = places[payload]
  if list and #list > 0 then
    removed[table.remove(list)] = '1'
    call('LSET', key, first + i - 1, hole)
    if aligned then call('LSET', starts, first + i - 1, hole) end
    if unique then call('SREM', set, payload) end
    holes = holes + 1
  end
end
-- A suspect, which stays, may equal one of them and share its count.
if holes > 0 and len(prefix .. 'resqued:suspects:' .. queue) == 0 and pcall_('EXISTS', (dead.keys(prefix, queue))) == 1 then
  for i = 1, #ARGV - 5 do
    if removed[i] == '1' then dead.forget(prefix, queue, ARGV[i + 5]) end
  end
end
if holes > 0 then
  -- From the nearer end, as the queue may be long.
  local direction = first < n / 2 and holes or -holes
  call('LREM', key, direction, hole)
  if aligned then call('LREM', starts, direction, hole) end
  if ARGV[5] ~= '' then lines(prefix).less(queue, ARGV[5], holes) end
end
return table.concat(removed)
