-- poll returns the queues with jobs. An idle process calls nothing else.
--
-- KEYS[1]   queues
-- ARGV[1]   prefix
-- ARGV[2]   '' to look only at the named queues; 'w' at all, of very many at those that have recently
--           held jobs and at the next part of a walk shared by all callers; else at all, from a
--           cursor on ('0' begins)
-- ARGV[3]   digest of the question, under which equal callers share an answer; '' none
-- ARGV[4]   how long a shared answer without jobs is valid (ms), if there are several masters
-- ARGV[5]   1 to always look, 0 to accept a shared answer
-- ARGV[6…]  names of fixed queues
-- RETURNS   {next cursor ('0': the pass is over), {queues with jobs, each after the letter of a
--           reason, see reasons.go; those with lines come in the first part of a pass}, {queue with
--           suspects, how many, …}, whether delayed jobs are due (1|0), size of the set of all
--           queues (0 if only named ones are checked), whether this is a shared answer (1|0), how
--           many masters there are (0 not asked for)}; error RESQUEDTYPE: queues is not a set
-- COST      3 commands for a shared answer. Else about 10, 1 per 128 empty queues, 2 or 3 per queue
--           with jobs, those of blocked in blocked_queues if any queue has a counter, and per
--           queue with lines 1 and those of open in lines; of very many queues 1,000 that have
--           held jobs and about 800 others; O(n)

local prefix, cursor = ARGV[1], ARGV[2]

-- All idle daemons of a fleet ask the same again and again. The answer of one without jobs serves all.
local shared = ARGV[3] ~= '' and prefix .. 'resqued:look:' .. ARGV[3]
if shared and ARGV[5] == '0' and (cursor == '' or cursor == 'w') then
  local size = pcall_('GET', shared)
  if type(size) == 'string' then
    -- A longer one was written before the server's clock was set back.
    local left = call('PTTL', shared)
    if left >= 0 and left <= tonumber(ARGV[4]) then return {cursor == 'w' and '0' or cursor, {}, {}, 0, tonumber(size) or 0, 1, 0} end
  end
end

local ms, us = now()
local names = {}
local known = 0
local walk -- through more queues than one call can check
if cursor ~= '' then
  local size = query('SCARD', KEYS[1])
  if type(size) ~= 'number' then
    return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is not a set; move it away')
  end
  known = size
  -- A million names at once would block the server for seconds.
  if size <= 2000 and (cursor == '0' or cursor == 'w') then
    cursor, names = '0', call('SMEMBERS', KEYS[1])
  elseif cursor == 'w' then
    walk = {key = prefix .. 'resqued:walk', recent = prefix .. 'resqued:recent', lasting = 3600000, met = {}, new = {}}
    cursor = '0'
    local v = pcall_('ZREVRANGEBYSCORE', walk.recent, '+inf', fmt('%.0f', ms - walk.lasting), 'WITHSCORES', 'LIMIT', 0, 1000)
    for i = 1, refused(v) and 0 or #v, 2 do
      names[#names + 1] = v[i]
      walk.met[v[i]] = tonumber(v[i + 1])
    end
    -- However many callers there are, a part takes about a millisecond, followed by a pause of 90.
    local text = pcall_('GET', walk.key)
    local from, due = match(type(text) == 'string' and text or '', '^(%d+) (%d+)$')
    due = tonumber(due)
    if not due or ms >= due or due > ms + 90 then -- else the clock was set back
      local part = call('SSCAN', KEYS[1], from or '0', 'COUNT', 800)
      walk.next = part[1]
      if #names == 0 then names = part[2] end
      for _, name in ipairs(names == part[2] and {} or part[2]) do
        if not walk.met[name] then names[#names + 1] = name end
      end
    end
  else
    local part = call('SSCAN', KEYS[1], cursor, 'COUNT', 1000)
    cursor, names = part[1], part[2]
  end
end
local found, at = {}, {} -- queues after their reasons; the index of each
local starved = starving(prefix)
local everything -- whether all queues are paused; checked at the first job

-- worked reports whether a queue's jobs may be taken.
local function worked(queue)
  if everything == nil then everything = pausing(prefix) end
  return not everything and not paused(prefix, queue)
end

-- why returns the reason why none of a queue's n jobs can start now, without its lines.
local function why(queue, n, free)
  if not (free and everything == false or worked(queue)) then return 'p' end
  return starved and blocked(prefix, queue, n, ms, starved) and 'l' or 'f'
end

local function note(queue, reason)
  at[queue] = at[queue] or #found + 1
  found[at[queue]] = reason .. queue
end

local function look(queue, free)
  local n = len(prefix .. 'queue:' .. queue)
  if not n or n == 0 then return end
  if walk and (walk.met[queue] or 0) < ms - 10000 then
    walk.new[#walk.new + 1] = fmt('%.0f', ms)
    walk.new[#walk.new + 1] = queue
    walk.found = walk.found or not walk.met[queue]
  end
  note(queue, why(queue, n, free))
end

-- any reports whether one of some keys exists.
local function any(before, list, from, to)
  local keys = {}
  for i = from, to do keys[i - from + 1] = before .. list[i] end
  return pcall_('EXISTS', unpack(keys)) ~= 0
end

-- Most queues are empty, and hardly any is paused, so one command checks many at once.
local function lookat(list, first)
  local few = #list - first < 16
  for wide = first, #list, 128 do
    local last = math.min(#list, wide + 127)
    if last == wide or any(prefix .. 'queue:', list, wide, last) then
      for from = wide, last, 16 do
        local to = math.min(last, from + 15)
        if last - wide < 16 or any(prefix .. 'queue:', list, from, to) then
          local free = from < to and not few and not any(prefix .. 'pause:queue:', list, from, to)
          for i = from, to do look(list[i], free) end
        end
      end
    end
  end
end
lookat(names, 1)
lookat(ARGV, 6)

-- Queues whose jobs wait in lines may be empty. The first part of a pass has all of them. Their lines are
-- probed even if other jobs can be taken, as there may always be such jobs.
local lined = (ARGV[2] == '' or ARGV[2] == '0' or ARGV[2] == 'w') and pcall_('HLEN', prefix .. 'resqued:lined')
if type(lined) == 'number' and lined > 0 then
  local l = linelocks(prefix)
  slots.due(prefix, l, ms, us)

  local function lookin(queue)
    local was = at[queue] and sub(found[at[queue]], 1, 1)
    if was == 'p' then return end
    -- there reports whether the queue has a line; its last one may just have been found empty.
    local function there() return pcall_('HEXISTS', prefix .. 'resqued:lined', queue) == 1 end
    if not was and not worked(queue) then
      if l.waits(queue) or there() then note(queue, 'p') end
    elseif l.open(queue, us) then
      note(queue, 'f')
    elseif not was and there() then
      note(queue, len(prefix .. 'queue:' .. queue) == 0 and 'w' or 'l')
    end
  end

  local few, asked = lined <= 1000, ARGV[2] == '' and {}
  for i = 6, asked and #ARGV or 0 do asked[ARGV[i]] = true end
  local queues = few and call('HKEYS', prefix .. 'resqued:lined')
    or asked and {} or call('HSCAN', prefix .. 'resqued:lined', fmt('%.0f', us % 2 ^ 30), 'COUNT', 500)[2]
  for i = 1, #queues, few and 1 or 2 do
    if not asked or asked[queues[i]] then lookin(queues[i]) end
  end
  for from = 6, few and 0 or #ARGV, 1000 do -- of very many, the part above may have none of these
    local last = math.min(#ARGV, from + 999)
    local counts = call('HMGET', prefix .. 'resqued:lined', unpack(ARGV, from, last))
    for i = from, last do
      if counts[i - from + 1] then lookin(ARGV[i]) end
    end
  end
end

if walk then
  if walk.next then
    pcall_('PERSIST', walk.key) -- a full server accepts this write, and then the others
    -- After a find, the next part is checked soon.
    pcall_('SET', walk.key, walk.next .. ' ' .. fmt('%.0f', ms + (walk.found and 10 or 90)), 'PX', 60000)
  end
  for from = 1, #walk.new, 1000 do pcall_('ZADD', walk.recent, unpack(walk.new, from, math.min(#walk.new, from + 999))) end
  if #walk.new > 0 then
    pcall_('ZREMRANGEBYRANK', walk.recent, 0, -1001)
    pcall_('PEXPIRE', walk.recent, walk.lasting)
  end
end

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

-- Nearly always, neither exists.
local due = pcall_('ZRANGEBYSCORE', prefix .. 'resqued:delayed', '-inf', fmt('%.0f', ms), 'LIMIT', 0, 1)[1]
  or pcall_('ZRANGEBYSCORE', prefix .. 'delayed_queue_schedule', '-inf', fmt('%.0f', math.floor(ms / 1000)), 'LIMIT', 0, 1)[1]
local masters = 0
if shared then
  masters = pcall_('SCARD', prefix .. 'resqued:masters')
  if type(masters) ~= 'number' then masters = 0 end
  if #found + #suspects > 0 or due then
    pcall_('DEL', shared)
  elseif masters > 1 then -- a single master needs no answer, nor a write that goes to replicas and files
    pcall_('SET', shared, known, 'PX', ARGV[4])
  end
end
return {cursor, found, suspects, due and 1 or 0, known, 0, masters}
