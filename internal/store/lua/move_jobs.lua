-- move_jobs moves payloads, compared byte by byte, from a part of a queue or of one of its lines to another queue's
-- tail or head, in their order, with unique queues' companions, death counts and loner markers.
--
-- KEYS[1]   queue:<from>, or the line
-- ARGV[1]   prefix
-- ARGV[2]   from
-- ARGV[3]   to, another queue
-- ARGV[4]   index of the first payload read
-- ARGV[5]   n, the number of payloads read from there
-- ARGV[6]   flags: u the other queue is unique, h to its head
-- ARGV[7]   '' or l and the name of the line, t and the place of a tenant
-- ARGV[8…]  per payload to move: itself, the key of its loner marker or ''
-- RETURNS   a text of one digit per payload: 1 moved, 0 no longer there, 2 an equal one waits in
--           the other, unique queue, so this one stays;
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 12 commands, up to 5 per moved payload, and those of upush in unique if the other
--           queue is unique; O(n), plus the way to them from the nearer end

local key, prefix, from, to = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local at, count = tonumber(ARGV[4]), tonumber(ARGV[5])
local unique, head = find(ARGV[6], 'u', 1, true), find(ARGV[6], 'h', 1, true)
local target, queues = prefix .. 'queue:' .. to, prefix .. 'queues'
local n = len(key)
if not n or not len(target) then
  return redis.error_reply('RESQUEDTYPE ' .. (n and target or key) .. ' is not a list; move it away')
end
if type(query('SCARD', queues)) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. queues .. ' is not a set; move it away')
end
local set, starts = key .. ':uniqueue', key .. ':start_at'
local companions = ARGV[7] == '' and call('EXISTS', set, starts) > 0 -- a line has no companions, whatever its name
if companions and not utyped(key) or unique and not utyped(target) then
  return redis.error_reply('RESQUEDTYPE the companions of ' .. key .. ' or ' .. target .. ' are not theirs; move them away')
end

local places, markers, done = {}, {}, {} -- places: payload → indexes of the arguments that ask for it
for i = #ARGV - 1, 8, -2 do
  local payload, nth = ARGV[i], (i - 6) / 2
  local list = places[payload] or {}
  list[#list + 1] = nth
  places[payload], done[nth] = list, '0'
  if ARGV[i + 1] ~= '' then
    markers[payload] = ARGV[i + 1]
  end
end
local ms = now()

forget_seen(prefix, from) -- also the first write, after which a full server accepts the rest
forget_seen(prefix, to)
call('SADD', queues, to)
local aligned = companions and call('LLEN', starts) == n
-- Removals since the read have moved the rest toward the head.
local first = math.max(0, at - math.min(200, count))
local waiting, times, wanted = call('LRANGE', key, first, at + count - 1), {}, {}
if aligned then times = call('LRANGE', starts, first, at + count - 1) end
for k = 1, #waiting do
  local i = head and #waiting + 1 - k or k -- the last one is pushed to the head first
  local list = places[waiting[i]]
  if list and #list > 0 then wanted[#wanted + 1] = {i = i, nth = table.remove(list)} end
end

local hole, holes = '\0' .. redis.sha1hex(prefix .. from .. at), 0
local second = fmt('%.0f', math.floor(ms / 1000))
local counted = pcall_('EXISTS', (dead.keys(prefix, from))) == 1
local apart_ = counted and len(prefix .. 'resqued:suspects:' .. from) ~= 0

-- follow moves a job's state under its queue's name.
local function follow(payload)
  if counted then
    local deaths, blame = dead.of(prefix, from, payload)
    if deaths > 0 then
      local d, b = dead.of(prefix, to, payload)
      dead.note(prefix, to, payload, math.max(deaths, d), math.max(blame, b), ms)
      -- A suspect, which stays, may equal it and share its count.
      if not apart_ then dead.forget(prefix, from, payload) end
    end
  end
  local marker = markers[payload]
  if marker then remark(marker, from, to, payload) end
end

for _, w in ipairs(wanted) do
  local payload, index = waiting[w.i], first + w.i - 1
  local start, pushed = match(times[w.i] or '', '^%d+$') or second, true
  if unique then
    pushed = upush(target, payload, start, head)
  else
    push(target, payload, head)
  end
  done[w.nth] = pushed and '1' or '2'
  if pushed then
    call('LSET', key, index, hole)
    if aligned then call('LSET', starts, index, hole) end
    if companions then call('SREM', set, payload) end
    holes = holes + 1
    follow(payload)
  end
end
if holes > 0 then
  -- From the nearer end, as the queue may be long.
  local direction = first < n / 2 and holes or -holes
  call('LREM', key, direction, hole)
  if aligned then call('LREM', starts, direction, hole) end
  if ARGV[7] ~= '' then lines(prefix).less(from, ARGV[7], holes) end
end
return table.concat(done)
