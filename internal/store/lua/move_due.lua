-- move_due moves jobs whose time has come to their queues: each once, however many callers ask.
-- A scheduler of Ruby's that watches a list while it is moved notices, and begins anew.
--
-- KEYS[1]   resqued:delayed
-- ARGV[1]   prefix
-- ARGV[2]   n, the most jobs to move
-- ARGV[3]   which queues are unique: - none, ? those that are named
-- ARGV[4]   caller, for turns: while one moves many jobs the others have nothing to do, so that the server
--           serves others between its calls; '' moves whoever's turn it is, - takes no turn itself
-- ARGV[5…]  per queue: name, unique (1|0)
-- RETURNS   {moved, of these dropped because an equal job waited, ms until the next is due
--           (0 more are now, -1 none waits) or the turn of another ends, {queues that are to be named: nothing was
--           done}, {keys that hold something else than they should}, {key, item, … that are no
--           jobs, and stay where they are}, how many masters there are if nothing is due, else 0};
--           error NOPERM: nothing was done
-- COST      4 commands when nothing is due, 5 when it is the turn of another. Else about 14, 3 per list, 2 per queue, 1 or 2 per
--           job and 1 per 100 jobs of a queue; O(n), and at most 1 MB of items or so. With a
--           unique queue those of putback per job.

local prefix, budget, named, caller = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '?', ARGV[4]
local own, schedule = prefix .. 'resqued:delayed', prefix .. 'delayed_queue_schedule'
local ms, us = now()
local sec = math.floor(ms / 1000)
local moved, dropped, asked, wrong, misfits = 0, 0, {}, {}, {}

-- first returns when the first of a sorted set is due that is due after a time, in its
-- own unit.
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
  -- A Ruby program may have delayed a job by mistake for longer than a number of ms can say.
  if more then wait = 0 elseif wait == math.huge then wait = -1 else wait = math.max(math.min(wait, 86400000), 1) end
  return {moved, dropped, wait, asked, wrong, misfits, masters}
end
local dueown, duesec = nextown and nextown <= ms, nextsec and nextsec <= sec
if not dueown and not duesec then
  masters = pcall_('SCARD', prefix .. 'resqued:masters')
  if refused(masters) then masters = 0 end
  return answer()
end

-- A turn ends by itself, soon after the death of its caller.
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

-- What is due: own members, and lists with as many items at their head as are left of the
-- budget. A key that is not a list is passed over.
local members, lists, more = {}, {}, false
local bytes, maxbytes = 0, 1048576

-- gather reads at most n, and no more when large ones have come.
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

-- Which queues are unique, and which are lists, has to be known before anything is done.
local unique, follows, open = {}, {}, {}
for i = 5, #ARGV, 2 do unique[ARGV[i]] = ARGV[i + 1] == '1' end
local function learn(queue)
  if open[queue] ~= nil then return end
  local key = prefix .. 'queue:' .. queue
  if unique[queue] == nil and named then asked[#asked + 1] = queue end
  if not unique[queue] and call('EXISTS', key .. ':uniqueue') == 1 then follows[queue] = true end
  open[queue] = len(key) ~= nil and (not unique[queue] or utyped(key))
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

call('PERSIST', own) -- the first write: a full server does not refuse the rest

local start = fmt('%.0f', sec)
local retry = fmt('%.0f', ms + 5000) -- of what cannot be moved, so that others are reached

local tails = {} -- queue → payloads that go to its tail
local function flush(queue)
  local tail = tails[queue]
  if not tail then return end
  tails[queue] = nil
  pcall_('SADD', prefix .. 'queues', queue)
  call('RPUSH', prefix .. 'queue:' .. queue, unpack(tail))
end

-- move puts a job into its queue.
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
      -- Its queue is not a list now. It waits where those behind it can be reached.
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

if caller == '' or caller == '-' then -- it takes no turn
elseif more then
  pcall_('SET', turn, caller, 'PX', length)
elseif mine then
  pcall_('DEL', turn)
end
nextown = not badown and first(own, '(' .. fmt('%.0f', ms)) or nil
nextsec = not badsec and first(schedule, '(' .. fmt('%.0f', sec)) or nil
return answer(more)
