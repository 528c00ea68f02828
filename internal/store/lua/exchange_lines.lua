-- exchange_lines takes jobs whose locks are free, and moves others into the lines for their locks. A part of
-- exchange; see exchange_fast, and lines for the keys.
--
-- DEFINES  locklines.serve(queue, room, capped, flags): the room that is left, and whether locks must be named; locklines.admit(q, payload, name, mates): see
--          there; locklines.append(queue, key, names, ends): no
--          result; locklines.begins(queue, flags): whether locked jobs are to wait in lines;
--          locklines.intake(queue, key, left, room, capped, flags): whether locks must be named
-- NEEDS    all parts before it
-- COST     serve: 1 command per 64 lines that are ready, and 6 per job; intake: 1 per some jobs, 3 per job that is
--          taken; append: 4 per line

local locklines = {}

-- next gives the next job of a line: name is its lock's, turn its entry in ready. It returns how many jobs were
-- given or quarantined, and whether the job was quarantined.
function locklines.next(queue, name, turn, capped)
  local ready, key, lock = prefix .. 'resqued:ready:' .. queue, line.known.list(queue, name), jobs .. name
  if bytes >= maxbytes or fence == false then
    call('ZADD', ready, turn, name)
    return 0, false
  end
  local waiting, gone, aside = pcall_('LRANGE', key, 0, 1), 0, false
  local payload, deaths, blame, blamed = waiting[1], 0, 0, false
  if payload then
    deaths, blame = died(queue, payload)
    blamed = blame > 0 and onsuspects == 'a'
  end
  if not payload then -- others have removed its jobs
  elseif blamed and line.behind(queue, payload, lock) then -- ready once the suspect has run
  elseif blamed then
    set_apart(prefix, queue, payload, '-')
    call('ZADD', ready, turn, name) -- its lock is still free
    gone, aside = 1, true
  elseif line.asking() and line.asking().kept(lock) then -- a suspect has the turn
  elseif not take(lock, me .. asked[w][1]) and not line.known.claim(queue, name, me .. asked[w][1], ttl) then
    table.insert(line.late, {queue, name}) -- its holder will release the lock
  elseif not fenced(lock) then
    call('ZADD', ready, turn, name)
  else
    table.insert(reply[10], asked[w][1])
    give(queue, payload, lock, '-', capped, deaths, blame)
    gone = 1
  end
  if gone > 0 then
    call('LPOP', key)
    line.known.add(queue, -1)
  end
  if not payload or gone > 0 and not waiting[2] then line.known.finish(queue, name) end
  return gone, aside
end

-- let gives jobs of a line for a limit, as many as may go. Those whose lock is held move to its line. The line stays
-- ready: limit decides. It returns the state of admit, or nil if the line is for a lock.
function locklines.let(queue, name, room, capped, flags)
  local list, most, begun = line.known.list(queue, name), slots.going(prefix, proc, name, us), w
  local q = {
    queue = queue, capped = capped, locked = find(flags, 'l', 1, true), byGo = find(flags, 'k', 1, true), requests = line.asking(),
    lined = true, ends = {}, names = {}, room = room, looked = 0, moved = 0, unnamed = false, gone = 0,
  }
  local payloads = most > 0 and pcall_('LRANGE', list, '0', fmt('%d', math.min(most, room, #asked - w + 1, 64) - 1)) or {}
  for i, payload in ipairs(payloads.err and {} or payloads) do
    local before, lock = w, q.locked and nameof(queue, payload, q.byGo) or nil
    if lock == name then return nil end -- a strange name, but that of a lock
    if q.room <= 0 or w > #asked or bytes >= maxbytes or q.locked and fence == false then break end
    if locklines.admit(q, payload, lock, lock and q.ends[lock]) == nil then
      if q.unnamed then ask(queue, q.byGo, {unpack(payloads, i)}) end
      break
    end
    q.gone = q.gone + 1
    if q.moved > 0 then break end
    if w > before then table.insert(reply[10], '+' .. asked[before][1] .. ' ' .. name) end
  end
  if q.gone > 0 then
    call('LTRIM', list, fmt('%d', q.gone), '-1')
    line.known.add(queue, -q.gone)
    slots.gone(prefix, line.known, name, most - w + begun, us)
    -- A process that runs suspects takes some time to come.
    if q.moved > 0 then pcall_('SET', prefix .. 'resqued:limit:hold:' .. name, '1', 'PX', '3000') end
  end
  locklines.append(queue, prefix .. 'queue:' .. queue, q.names, q.ends)
  if pcall_('EXISTS', list) == 0 then
    line.known.finish(queue, name)
  else
    line.known.kept('ZADD', prefix .. 'resqued:ready:' .. queue, fmt('%.0f', us - 9e15), name)
    if q.gone > 0 and q.moved == 0 and w - begun < most and q.room > 0 and w <= #asked then more = 1 end
  end
  return q
end

-- serve gives jobs of the ready lines of a queue.
function locklines.serve(queue, room, capped, flags)
  local moved, unnamed, tried = 0, false, {} -- lines for limits stay ready
  while room > 0 and w <= #asked and bytes < maxbytes and fence ~= false do
    if moved >= bound then -- equal jobs become suspects together, and a line may have many
      more = 1
      break
    end
    local most, behind = math.min(room, #asked - w + 1, 64), false
    local next = pcall_('ZPOPMIN', prefix .. 'resqued:ready:' .. queue, most)
    for i = 1, next.err and 0 or #next, 2 do
      unnamed = unnamed or tried[next[i]]
      if room <= 0 or w > #asked or unnamed then -- a line for a limit has used the room
        call('ZADD', prefix .. 'resqued:ready:' .. queue, next[i + 1], next[i])
      else
        local q = slots.named(next[i]) and locklines.let(queue, next[i], room, capped, flags)
        tried[next[i]] = q and 1
        if q then
          room, moved, unnamed = q.room, moved + q.moved, q.unnamed
          bounced, budget = bounced + q.looked, budget - q.looked
        else
          local gone, aside = locklines.next(queue, next[i], next[i + 1], capped)
          if aside then behind, moved = true, moved + 1 else room = room - gone end
        end
      end
    end
    if unnamed then break end
    if next.err or #next < 2 * most and not behind then break end
  end
  if moved > 0 then reply[9] = reply[9] + apart(prefix, queue) end
  return room, unnamed == true
end

-- append appends payloads to the lines for their locks.
function locklines.append(queue, key, names, ends)
  for _, name in ipairs(names) do
    local list = line.known.list(queue, name)
    local n = pcall_('RPUSH', list, unpack(ends[name]))
    if type(n) == 'number' then
      if n == #ends[name] then line.known.begin(queue, name, ms) end
      line.known.add(queue, #ends[name])
    else
      reasons[#reasons + 1] = list .. ' is not a list; its jobs wait at the tail of ' .. key
      call('RPUSH', key, unpack(ends[name]))
    end
  end
end

-- begins reports whether locked jobs of a queue wait in lines, where workers of other programs would not see them.
function locklines.begins(queue, flags)
  if not find(flags, 'q', 1, true) then return false end
  local others = prefix .. 'resqued:strangers'
  if line.shared == nil then line.shared = pcall_('EXISTS', others) == 1 end
  return not line.shared or pcall_('SISMEMBER', others, queue) == 0 and pcall_('SISMEMBER', others, '*') == 0
end

-- admit gives a job of the queue in q, whose lock has a name, or none, if the lock is free and without a line; else
-- it puts the job in ends, for that line, or quarantines it: mates says that jobs before it are in ends. It returns
-- whether it has quarantined the job, or nil if nothing more can be taken.
function locklines.admit(q, payload, name, mates)
  local deaths, blame = died(q.queue, payload)
  local lock, blamed = name and jobs .. name or '', blame > 0 and onsuspects == 'a'
  if blamed and not (name and (mates or line.behind(q.queue, payload, lock))) then
    set_apart(prefix, q.queue, payload, '-')
    q.moved = q.moved + 1
    return true
  elseif not name and q.locked then
    q.unnamed = true
    return nil
  elseif name and (q.ends[name] or blamed or q.lined and (len(line.known.list(q.queue, name)) or 0) > 0
    or q.requests and q.requests.kept(lock) or not take(lock, me .. asked[w][1])) then
    if not q.ends[name] then q.ends[name], q.names[#q.names + 1] = {}, name end
    table.insert(q.ends[name], payload)
    q.looked = q.looked + 1
  elseif name and not fenced(lock) then
    return nil
  else
    give(q.queue, payload, lock, '-', q.capped, deaths, blame)
    q.room = q.room - 1
  end
  return false
end

function locklines.head(n)
  local function going()
    return n.gone < n.left and n.looked + n.moved < n.scan and n.room > 0 and w <= #asked and bytes < maxbytes and fence ~= false and not n.unnamed
  end
  local chunk = 4
  while going() do
    local waiting, from, size = call('LRANGE', n.key, n.gone, n.gone + chunk - 1), n.gone, 0
    if #waiting == 0 then break end
    for _, payload in ipairs(waiting) do
      if not going() then break end
      local name = nameof(n.queue, payload, n.byGo)
      if locklines.admit(n, payload, name, name and n.ends[name]) == nil then break end
      n.gone, size = n.gone + 1, size + #payload
    end
    if size > 8192 * (n.gone - from) then chunk = 4 else chunk = math.min(4 * chunk, bound) end
  end
end

function locklines.intake(queue, key, left, room, capped, flags)
  if not line.known then line.known = linelocks(prefix) end
  local lined = line.known.count(queue)
  -- Above the bound, as without lines until it is half empty: each change makes pollers search the whole queue.
  local counted = starved and lined < line.known.bound and pcall_('HEXISTS', counters, queue) == 1
  if lined >= line.known.bound or counted and lined >= line.known.bound / 2 then
    return reserve(queue, key, left, room, capped, flags)
  end
  call('PERSIST', info) -- see register: a full server must not reject the rest
  if counted then forget_seen(prefix, queue) end
  local n = {
    queue = queue, key = key, left = left, room = room, capped = capped, locked = true, lined = lined > 0, byGo = find(flags, 'k', 1, true),
    scan = math.max(1, math.min(bound, budget)), requests = line.asking(),
    ends = {}, names = {}, unnamed = false, gone = 0, looked = 0, moved = 0, -- ends: name → payloads for its line
  }
  locklines.head(n)
  locklines.append(queue, key, n.names, n.ends)
  if n.gone > 0 then call('LTRIM', key, n.gone, -1) end
  bounced, budget = bounced + n.looked, budget - n.looked - n.moved
  if n.moved > 0 then reply[9] = reply[9] + apart(prefix, queue) end
  if n.unnamed then
    ask(queue, n.byGo, line.page(key, 0, n.scan, maxbytes))
  elseif n.gone < left and n.room > 0 and w <= #asked and fence ~= false then
    more = 1
  end
  return n.unnamed
end
