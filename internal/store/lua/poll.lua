-- poll tells which queues hold jobs, and moves requeued jobs whose time has come
-- back to their queues. An idle process calls nothing else.
--
-- KEYS[1] queues
-- ARGV    prefix, cursor ('' = look only at the queues named, else the cursor
--         into the set of all queues), then the names of fixed queues
-- RETURNS {next cursor, {queues with jobs}, {queues in which every job is locked},
--         delayed jobs dropped as duplicates, {queue with suspects, how many, …}}; a next
--         cursor of '0' ends a pass. Queues that are paused are not named.

local prefix, cursor = ARGV[1], ARGV[2]

local ms = now()
local dropped = 0
local due = pcall_('ZCARD', prefix .. 'resqued:delayed')
if type(due) == 'number' and due > 0 then
  local members = call('ZRANGEBYSCORE', prefix .. 'resqued:delayed', '-inf', fmt('%.0f', ms), 'LIMIT', 0, 100)
  if #members > 0 then
    need(prefix .. 'resqued:delayed', 'ZREM')
    need(prefix .. 'queue:', 'RPUSH')
    needcompanions(prefix)
  end
  for _, member in ipairs(members) do
    local n, unique, i = match(member, '^[^#]*#[^ ]* (%d+)(u?) ()')
    n = tonumber(n)
    local queue = n and sub(member, i, i + n - 1)
    local key = prefix .. 'queue:' .. (queue or '')
    if queue and len(key) and (unique == '' or utyped(key)) then
      call('ZREM', prefix .. 'resqued:delayed', member)
      local start = unique == '' and '-' or fmt('%.0f', math.floor(ms / 1000))
      if not putback(prefix, queue, sub(member, i + n), start, false) then dropped = dropped + 1 end
    else
      -- Its queue is no list now. It must not keep those behind it from being seen.
      pcall_('ZADD', prefix .. 'resqued:delayed', fmt('%.0f', ms + 1000), member)
    end
  end
end

local names = {}
if cursor ~= '' then
  local size = pcall_('SCARD', KEYS[1])
  if type(size) ~= 'number' then
    return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is no set; move it away')
  end
  -- A whole set of a million names would block the server for seconds.
  if cursor == '0' and size <= 2000 then
    names = call('SMEMBERS', KEYS[1])
  else
    local part = call('SSCAN', KEYS[1], cursor, 'COUNT', 1000)
    cursor, names = part[1], part[2]
  end
end
local waiting, full = {}, {}
local starved = starving(prefix)
local everything -- whether all queues are paused: asked for when the first job is met

-- worked tells whether jobs of a queue may be taken.
local function worked(queue)
  if everything == nil then everything = pausing(prefix) end
  return not everything and not paused(prefix, queue)
end

local function look(queue)
  local n = len(prefix .. 'queue:' .. queue)
  if not n or n == 0 or not worked(queue) then return end
  if starved and blocked(prefix, queue, n, ms, starved) then
    full[#full + 1] = queue
  else
    waiting[#waiting + 1] = queue
  end
end
for _, queue in ipairs(names) do look(queue) end
for i = 3, #ARGV do look(ARGV[i]) end

local suspects = {}
local set = prefix .. 'resqued:suspects'
local size = pcall_('SCARD', set)
if type(size) == 'number' and size > 0 then
  for _, queue in ipairs(size <= 1000 and call('SMEMBERS', set) or call('SRANDMEMBER', set, 1000)) do
    local n = apart(prefix, queue)
    if n > 0 and worked(queue) then
      suspects[#suspects + 1] = queue
      suspects[#suspects + 1] = n
    end
  end
end
return {cursor, waiting, full, dropped, suspects}
