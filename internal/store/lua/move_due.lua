-- move_due moves due jobs to their queues: each once, however many callers there are. A Ruby scheduler that watches a
-- list during the move notices, and starts again.
--
-- KEYS[1]   resqued:delayed
-- ARGV[1]   prefix
-- ARGV[2]   n, the most jobs to move
-- ARGV[3]   which queues are unique: - none, ? those named below
-- ARGV[4]   caller, for turns: while one moves many jobs, the others do nothing, so that the server
--           can serve others in between; '' ignores turns, - takes no turn itself
-- ARGV[5…]  per queue: name, unique (1|0)
-- RETURNS   {moved, how many of these were dropped as duplicates, ms until the next is due (0 more
--           are due, -1 none waits) or another's turn ends, {queues to be named: nothing was
--           done}, {keys of the wrong type}, {key, item, … that are not jobs, and stay}, how many
--           masters there are if nothing is due, else 0}; error NOPERM: nothing was done
-- COST      4 commands if nothing is due, 5 in another's turn. Else about 14, 3 per list, 2 per
--           queue, 1 or 2 per job and 1 per 100 jobs of a queue; O(n), and at most about 1 MB of
--           items. With a unique queue those of putback per job.

local prefix, budget, named, caller = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '?', ARGV[4]
local own, schedule = prefix .. 'resqued:delayed', prefix .. 'delayed_queue_schedule'
local ms, us = now()
local sec = math.floor(ms / 1000)
local moved, dropped, asked, wrong, misfits = 0, 0, {}, {}, {}

-- first returns the first score of a sorted set after a time, in the set's own unit.
local function first(set, after)
  local v = query('ZRANGEBYSCORE', set, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if v.err then return nil, true end
  return tonumber(v[2])
end

local nextown, badown = first(own, '-inf')
local nextsec, badsec = first(schedule, '-inf')
if badown then wrong[#wrong + 1] = own end
if badsec then wrong[#wrong + 1] = schedule end
local masters = 0
local function answer(more)
  local wait = math.min(nextown or math.huge, nextsec and math.ceil(nextsec) * 1000 or math.huge) - ms
  -- By mistake, a Ruby program may have delayed a job beyond the range of ms.
  if more then wait = 0 elseif wait == math.huge then wait = -1 else wait = math.max(math.min(wait, 86400000), 1) end
  return {moved, dropped, wait, asked, wrong, misfits, masters}
end
local dueown, duesec = nextown and nextown <= ms, nextsec and nextsec <= sec
if not dueown and not duesec then
  masters = pcall_('SCARD', prefix .. 'resqued:masters')
  if refused(masters) then masters = 0 end
  return answer()
end

-- A turn ends by itself, soon after its caller's death.
local turn, length, mine = prefix .. 'resqued:mover', 500, false
if caller ~= '' then
  local now = query('GET', turn)
  mine = now == caller
  if type(now) == 'string' and not mine then
    local left = query('PTTL', turn)
    if left >= 0 and left <= length then
      nextown, nextsec = ms + left, nil
      return answer()
    end
  end
end

-- Collect what is due: own members, and lists with the items at their head, within the budget. Keys that are
-- not lists are skipped.
local members, lists, more = {}, {}, false
local bytes, maxbytes = 0, 1048576

-- gather reads at most n items, fewer if they are large.
local function gather(n, read)
  local all, size = {}, 8
  while #all < n and bytes < maxbytes do
    local want = math.min(size, n - #all)
    local some = read(#all, want)
    for _, s in ipairs(some) do
      all[#all + 1] = s
      bytes = bytes + #s
    end
    if #some < want then break end
    size = size * 4
  end
  return all
end

if dueown then
  local n = duesec and math.ceil(budget / 2) or budget -- some of each
  members = gather(n, function(from, count)
    return call('ZRANGEBYSCORE', own, '-inf', fmt('%.0f', ms), 'LIMIT', from, count)
  end)
  more = #members == n or bytes >= maxbytes
end
if duesec then
  local left, offset = budget - #members, 0
  while left > 0 and bytes < maxbytes do
    local some = call('ZRANGEBYSCORE', schedule, '-inf', fmt('%.0f', sec), 'LIMIT', offset, 100)
    for _, at in ipairs(some) do
      local list = prefix .. 'delayed:' .. at
      local n = len(list)
      if not n then
        wrong[#wrong + 1] = list
      elseif left > 0 and bytes < maxbytes then
        local items = gather(left, function(from, count) return call('LRANGE', list, from, from + count - 1) end)
        lists[#lists + 1] = {at = at, list = list, items = items, all = #items == n}
        left = left - math.max(#items, 1)
      end
    end
    offset = offset + #some
    if #some < 100 then break end
  end
  more = more or left <= 0 or bytes >= maxbytes
end

-- Know which queues are unique, and which are lists, before the first write.
local unique, follows, open = {}, {}, {}
for i = 5, #ARGV, 2 do unique[ARGV[i]] = ARGV[i + 1] == '1' end
local function learn(queue)
  if open[queue] ~= nil then return end
  local key = prefix .. 'queue:' .. queue
  if unique[queue] == nil and named then asked[#asked + 1] = queue end
  if not unique[queue] and call('EXISTS', key .. ':uniqueue') == 1 then follows[queue] = true end
  open[queue] = not queueobstacle(key, unique[queue])
  if not open[queue] then wrong[#wrong + 1] = key end
end

local jobs = {} -- of own members
for i, member in ipairs(members) do
  local queue, payload = memberof(member)
  if queue then
    learn(queue)
    jobs[i] = {queue, payload}
  end
end
for _, l in ipairs(lists) do
  l.jobs = {}
  for i, item in ipairs(l.items) do
    local queue, payload = jobof(item)
    if queue then
      learn(queue)
      l.jobs[i] = {queue, payload}
    end
  end
end
if #asked > 0 then return answer(true) end

call('PERSIST', own) -- the first write, after which a full server accepts the rest

local start = fmt('%.0f', sec)
local retry = fmt('%.0f', ms + 5000) -- for jobs that cannot be moved, so that others are reached

local tails = {} -- queue → payloads for its tail
local function flush(queue)
  local tail = tails[queue]
  if not tail then return end
  tails[queue] = nil
  pcall_('SADD', prefix .. 'queues', queue)
  call('RPUSH', prefix .. 'queue:' .. queue, unpack(tail))
end

local function move(job)
  local queue, payload = job[1], job[2]
  moved = moved + 1
  if unique[queue] then
    if not putback(prefix, queue, payload, start, false) then dropped = dropped + 1 end
    return
  elseif follows[queue] then
    return append(prefix, queue, payload, ms)
  end
  local tail = tails[queue] or {}
  tails[queue] = tail
  tail[#tail + 1] = payload
  if #tail == 100 then flush(queue) end
end

for i, member in ipairs(members) do
  local job = jobs[i]
  if job and open[job[1]] then
    call('ZREM', own, member)
    move(job)
  else
    call('ZADD', own, retry, member)
    if not job then
      misfits[#misfits + 1] = own
      misfits[#misfits + 1] = member
    end
  end
end

for _, l in ipairs(lists) do
  if #l.items > 0 then call('LTRIM', l.list, #l.items, -1) end
  local kept = false
  for i, item in ipairs(l.items) do
    local job = l.jobs[i]
    if job and (open[job[1]] or not badown) then
      pcall_('SREM', prefix .. 'timestamps:' .. item, 'delayed:' .. l.at)
    end
    if job and open[job[1]] then
      move(job)
    elseif job and not badown then
      -- Its queue's key is not a list now. It waits where jobs behind it can be reached.
      call('ZADD', own, retry, delayed(fmt('stuck:%.0f:%s#%d', us, l.at, i), job[1], job[2], unique[job[1]]))
    else
      call('RPUSH', l.list, item)
      kept = true
      if not job then
        misfits[#misfits + 1] = l.list
        misfits[#misfits + 1] = item
      end
    end
  end
  if l.all and not kept then call('ZREM', schedule, l.at) end
end
for queue in pairs(tails) do flush(queue) end

if caller == '' or caller == '-' then -- no turn
elseif more then
  pcall_('SET', turn, caller, 'PX', length)
elseif mine then
  pcall_('DEL', turn)
end
nextown = not badown and first(own, '(' .. fmt('%.0f', ms)) or nil
nextsec = not badsec and first(schedule, '(' .. fmt('%.0f', sec)) or nil
return answer(more)
