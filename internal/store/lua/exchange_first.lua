-- exchange_first checks on the fast path whether anything is locked, paused, lined, capped, unique or blamed in the
-- first queues, and hands the lock of an ended job to the next in its line. A part of exchange; see exchange_fast.
--
-- DEFINES  going: whether the call is still on the fast path
-- NEEDS    all parts before it
-- COST     1 command, nearly always; 15 to hand over a lock

local going, n = fastpath and nother == 0, nwant > 0 and nqueue or 0
if going then n = math.min(empty + 8, n) end
for i = 1, n do
  local a, b, c, d, m = byte(list, readat, readat + 4)
  local from = readat + 5 + m
  if m > 0 then lastmode = sub(list, readat + 5, from - 1) end
  readat = from + ((a * 256 + b) * 256 + c) * 256 + d
  names[i], modes[i] = sub(list, from, readat - 1), lastmode
end
nread = n
if released.kept and not going then
  call('DEL', ARGV[locksat])
  released.kept = false
end
if going then
  -- The first queues may be known to have been empty; one command then shows whether they still are.
  if empty > n then empty = n end
  for i = 1, empty do obstacles[6 + i] = prefix .. 'queue:' .. names[i] end
  for i = empty + 1, n do obstacles[6 + i] = prefix .. 'pause:queue:' .. names[i] end
  local met = pcall_('EXISTS', unpack(obstacles))
  going = met == 0
  if released.kept then
    -- If all waiting jobs are in lines, and only this lock's line may be served, the call that ends the
    -- holder begins the line's next job. Otherwise the lock is released.
    local lock, l, queue, at, keys = ARGV[locksat], nil, nil, nil, {}
    if met == 1 and n == nqueue and sub(ARGV[4], -1) ~= 'i' then -- without wants, queues do not count
      local queues = pcall_('HGET', prefix .. 'resqued:awaited', sub(lock, #jobs + 1))
      l, queue = match(type(queues) == 'string' and queues or '', '^(%d+) (.*)$')
    end
    for i = 1, queue and tonumber(l) == #queue and n or 0 do -- exactly one queue awaits the lock
      if names[i] == queue and (modes[i] == '0lq' or modes[i] == '0lkq') then at = i end
      keys[#keys + 1] = prefix .. 'resqued:ready:' .. names[i]
      keys[#keys + 1] = prefix .. 'resqued:turns:' .. names[i]
      if i > empty then keys[#keys + 1] = prefix .. 'queue:' .. names[i] end
    end
    keys[#keys + 1] = at and prefix .. 'pause:queue:' .. queue or nil
    if at and pcall_('EXISTS', unpack(keys)) == 0 then
      local list = prefix .. 'resqued:line:' .. l .. ':' .. queue .. ':' .. sub(lock, #jobs + 1)
      local waiting, lined = pcall_('LRANGE', list, '0', '1'), prefix .. 'resqued:lined'
      fence = waiting[2] and setaside(fencekey, us, nwant) or nil -- the last job of a line ends it
      local left = fence and pcall_('HINCRBY', lined, queue, '-1')
      if type(left) == 'number' and left > 0 then
        local t, m, rest = byte(wants, wantat, wantat + 2)
        local from = wantat + 3 + t
        local token, worker = sub(wants, wantat + 3, from - 1), lead .. sub(wants, from, from + m * 256 + rest - 1) .. tail
        local record = fmt('3 %d %d %d 0 %d 0 0 %d -\n', #queue, #worker, #lock, fence + 1, ms) .. queue .. worker .. lock .. waiting[1]
        call('SET', lock, me .. token, 'EX', ttl)
        call('HSET', inflight, token, record)
        call('LPOP', list)
        return {reply[1], 2, record}
      elseif type(left) == 'number' and left < 0 then
        call('HDEL', lined, queue) -- not known that there are lines
      elseif type(left) == 'number' then
        call('HINCRBY', lined, queue, '1')
      end
    end
    call('DEL', lock)
    released.kept = false
  end
  if not going and pcall_('EXISTS', prefix .. 'resqued:lined') == 1 then
    -- Lines only matter to their own queues, and to calls that release their locks.
    local waited, few = {}, nlocks <= 1000
    for c = 1, few and nlocks or 0 do waited[c] = sub(ARGV[locksat + c - 1], #jobs + 1) end
    local lined = n > 0 and pcall_('HMGET', prefix .. 'resqued:lined', unpack(names, 1, n)) or {}
    local some = few and nlocks > 0 and pcall_('HMGET', prefix .. 'resqued:awaited', unpack(waited)) or {}
    going = few and not lined.err and not some.err
    for i = 1, going and n or 0 do going = going and not lined[i] end
    for c = 1, going and nlocks or 0 do going = going and not some[c] end
    -- Jobs may wait for the places of those that have ended.
    if going and sub(ARGV[4], -1) == 'i' then going = pcall_('EXISTS', prefix .. 'resqued:gates') == 0 end
    if going then
      obstacles[6], obstacles.lines = counters, true
      going = pcall_('EXISTS', unpack(obstacles)) == 0
    else
      -- exchange_slow then need not check again whether there are only lines, and which queues await the locks.
      obstacles.stop, obstacles.known, obstacles.to = true, met == 1, n
      obstacles.some = not some.err and nlocks > 0 and some or nil
    end
  end
  local dead = not going and not obstacles.stop and pcall_('EXISTS', deathkey, prefix .. 'resqued:suspects') or 0
  if type(dead) == 'number' and dead > 0 then
    obstacles[1], obstacles.deadly, obstacles.apart = counters, true, dead == 2
    going = pcall_('EXISTS', unpack(obstacles)) == 0
  end
  if going then
    nextqueue = empty + 1
  elseif empty > 0 and not obstacles.stop then
    for i = 1, empty do obstacles[6 + i] = prefix .. 'pause:queue:' .. names[i] end
    going = pcall_('EXISTS', unpack(obstacles)) == 0
  end
  if going and nwant == 0 then return {reply[1], 0} end
  -- The first write must be one that a full server accepts; then it accepts the others.
  if going and nplain == 0 and nwant > 1 then call('PERSIST', info) end
end
