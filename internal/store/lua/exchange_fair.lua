-- exchange_fair takes jobs of a queue in turns of its tenants. A part of exchange; see exchange_fast, and lines for
-- the keys.
--
-- Jobs at the queue's head first move to their tenants' lines, except those that the same call takes. A job whose
-- lock is held moves to the line for that lock, which counts as a turn: such lines go first, so they must not hold
-- more than the tenants' shares.
--
-- DEFINES  fair.take(queue, key, left, room, cap, flags, unique): {room, left, unnamed, enough}
-- NEEDS    all parts before it
-- COST     about 10 commands per queue, 2 per tenant of whom jobs are taken, and 1 per tenant of the jobs at its head

-- read reads jobs at the queue's head: fresh has each place's payloads, places are in order of appearance, gone
-- is how many were read.
function fair.read(f)
  local size, most = 0, f.adds and math.min(f.left, fair.reach, f.lines.bound - f.lines.count(f.queue)) or 0
  f.fresh, f.places, f.gone, f.most = {}, {}, 0, most
  while f.gone < most and size < fair.bytes and not f.unnamed do
    local payloads = call('LRANGE', f.key, f.gone, math.min(f.gone == 0 and 4 or f.gone + math.min(3 * f.gone, 64), most) - 1)
    if #payloads == 0 then break end
    for _, payload in ipairs(payloads) do
      local place = fair.tenant(f.queue, payload, f.index)
      if not place then
        f.unnamed = true
        break
      end
      place = '=' .. place
      if not f.fresh[place] then f.fresh[place], f.places[#f.places + 1] = {}, place end
      table.insert(f.fresh[place], payload)
      f.gone, size = f.gone + 1, size + #payload
    end
  end
  if f.unnamed then fair.ask(f, line.page(f.key, f.gone, fair.reach, fair.bytes)) end
end

-- order sorts the places by their turns. New ones start with the next turn. If no tenant waits, nothing of this is
-- stored.
function fair.order(f)
  local next, wide = {}, math.max(64, math.min(f.room, 512))
  local low = f.lines.kept('ZRANGEBYSCORE', f.set, '-1', '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
  f.waits = not low.err and #low > 0
  if f.waits then
    local first, args = low[1] == '!' and low[4] or low[1] ~= '!' and low[2] or '0', {}
    for i, place in ipairs(f.places) do args[2 * i - 1], args[2 * i] = first, place end
    if #args > 0 then call('ZADD', f.set, 'NX', unpack(args)) end
    local part = call('ZRANGE', f.set, '0', fmt('%d', wide), 'WITHSCORES')
    for i = 1, #part, 2 do next[#next + 1] = {place = part[i], turn = tonumber(part[i + 1]), there = 0} end
  else
    for i, place in ipairs(f.places) do next[i] = {place = place, turn = 0, there = 0, read = {}} end
  end
  -- If there are more tenants, their turns come after edge, the last known turn.
  f.next, f.at, f.all, f.edge = next, 1, #next <= wide or not f.waits, next[1] and next[#next].turn
  f.each = math.max(1, math.ceil(f.room / math.max(1, #next)))
end

-- first returns the next job of a place, and whether it is at the queue's head: jobs in the place's line come first.
-- Payload sizes are unknown until read, so it reads a few at a time, and not more than there is room for.
function fair.first(f, t)
  if not t.read or t.there == #t.read and t.more then
    local from, n = t.there, f.each * (t.read and 4 or 1)
    n = math.min(n, f.met == 0 and 4 or math.max(1, math.min(64, math.floor(fair.bytes * f.met / (f.weighed + 1)))))
    local part = pcall_('LRANGE', f.lines.tenant(f.queue, t.place), fmt('%d', from), fmt('%d', from + n))
    if part.err then part = {} end
    t.read, t.more = t.read or {}, #part > n
    for i = 1, math.min(n, #part) do t.read[from + i] = part[i] end
    for i = 1, #part do f.met, f.weighed = f.met + 1, f.weighed + #part[i] end
  end
  if t.there < #t.read then return t.read[t.there + 1], false end
  local payloads = f.fresh[t.place]
  return payloads and payloads[(t.used or 0) + 1], true
end

-- later advances a place's turn by step: it moves behind all places that have the same turn.
function fair.later(f, t, step)
  t.turn, t.moved = t.turn + step, true
  local i = f.at
  while f.next[i + 1] and f.next[i + 1].turn <= t.turn do
    f.next[i] = f.next[i + 1]
    i = i + 1
  end
  f.next[i] = t
end

-- try takes the next job of the place whose turn it is. It returns false if nothing more can be taken.
function fair.try(f)
  local t = f.next[f.at]
  local payload, new = fair.first(f, t)
  if not payload then
    f.over[#f.over + 1], f.at = t.place, f.at + 1
    return true
  end
  local step, name = f.cost(t.place), f.locked and nameof(f.queue, payload, f.byGo) or nil
  if f.locked and not name then
    f.unnamed = true
    fair.ask(f, fair.heads(f))
    return false
  end
  local aside = locklines.admit(f, payload, name)
  if aside == nil then return false end
  if new then t.used = (t.used or 0) + 1 else t.there = t.there + 1 end
  if step > 0 and not aside then fair.later(f, t, step) end
  return true
end

-- keep moves jobs that no thread has taken to their tenants' lines, and returns how many.
function fair.keep(f, used, scores)
  local added = 0
  for _, place in ipairs(f.places) do
    local payloads, from = f.fresh[place], (used[place] or 0) + 1
    if from <= #payloads then
      local list = f.lines.tenant(f.queue, place)
      if not f.waits and not used[place] then
        scores[#scores + 1] = '0'
        scores[#scores + 1] = place
      end
      if type(pcall_('RPUSH', list, unpack(payloads, from))) == 'number' then
        added = added + #payloads - from + 1
      else
        reasons[#reasons + 1] = list .. ' is not a list; its jobs wait at the tail of ' .. f.key
        call('RPUSH', f.key, unpack(payloads, from))
      end
    end
  end
  return added
end

-- write stores lines and turns after the call. Taken jobs leave their lines; others that were read go to the
-- ends of lines.
function fair.write(f)
  local served, scores, used = 0, {}, {}
  for _, t in ipairs(f.next) do
    if t.there > 0 then
      call('LTRIM', f.lines.tenant(f.queue, t.place), fmt('%d', t.there), '-1')
      served = served + t.there
    end
    used[t.place] = t.used
    if t.moved then
      scores[#scores + 1] = fmt('%.17g', t.turn)
      scores[#scores + 1] = t.place
    end
  end
  local added = fair.keep(f, used, scores)
  if f.gone > 0 then call('LTRIM', f.key, fmt('%d', f.gone), '-1') end
  f.lines.add(f.queue, added - served, added - served)
  locklines.append(f.queue, f.key, f.names, f.ends)
  for from = 1, (f.waits or added > 0) and #scores or 0, 1000 do f.lines.kept('ZADD', f.set, unpack(scores, from, math.min(from + 999, #scores))) end
  if f.waits and #f.over > 0 then f.lines.leave(f.queue, f.over) end
end

-- turns lets the tenants of f take turns. It sets room, what is left of it; unnamed, whether jobs must be
-- named; drained, whether no tenant has a job left; left, how many jobs are left in the queue.
function fair.turns(f)
  call('PERSIST', info) -- see register: a full server must not reject the rest
  if f.adds and starved and pcall_('HEXISTS', counters, f.queue) == 1 then forget_seen(prefix, f.queue) end
  fair.read(f)
  fair.order(f)
  f.lined, f.requests = f.locked and pcall_('EXISTS', prefix .. 'resqued:lines:' .. f.queue) ~= 0, line.asking()
  local scan = math.max(1, math.min(bound, budget))
  while f.at <= #f.next and (f.all or f.next[f.at].turn <= f.edge) and f.room > 0 and w <= #asked and bytes < maxbytes
    and (fence ~= false or not f.locked) and f.looked + f.moved < scan do
    if not fair.try(f) then break end
  end
  f.drained = f.at > #f.next and f.all
  fair.write(f)
  bounced, budget = bounced + f.looked, budget - f.looked - f.moved
  if f.moved > 0 then reply[9] = reply[9] + apart(prefix, f.queue) end
  local open = fence ~= false or not f.locked
  if not f.unnamed and (not f.drained and open or f.gone < f.left and f.most > 0) and f.room > 0 and w <= #asked then more = 1 end
  f.left = f.left - f.gone
end

-- take takes jobs in tenants' turns from a queue of left jobs. It returns the room left, or nil if it checked
-- nothing; how many jobs are left in the queue; whether jobs must be named; and whether to take nothing from
-- the queue itself.
function fair.take(queue, key, left, room, cap, flags, unique)
  local adds = find(flags, 'f', 1, true) and not unique and locklines.begins(queue, flags)
  if not (adds and left > 0 or line.known and pcall_('EXISTS', line.known.turns(queue)) == 1) or paused(prefix, queue) then
    return room, left, false, false
  end
  room = room or line.roomin(queue, cap)
  local f = {room = room, left = left, unnamed = false, drained = true}
  if room > 0 and w <= #asked and bytes < maxbytes and (fence ~= false or not find(flags, 'l', 1, true)) then
    if not line.known then line.known = linelocks(prefix) end
    f.queue, f.key, f.capped, f.adds, f.lines, f.set = queue, key, cap > 0, adds, line.known, line.known.turns(queue)
    f.byGo, f.locked = find(flags, 'k', 1, true), find(flags, 'l', 1, true)
    f.index, f.cost = fair.rule(queue)
    f.met, f.weighed, f.moved, f.looked, f.ends, f.names, f.over = 0, 0, 0, 0, {}, {}, {}
    fair.turns(f)
  end
  -- Beyond the bound, the rest is taken as from any other queue, unless tenants wait.
  return f.room, f.left, f.unnamed, f.unnamed or not f.drained or adds and line.known and line.known.count(queue) < line.known.bound
end

-- heads returns the next known jobs of the places that have not had their turn.
function fair.heads(f)
  local out, size = {}, 0
  local function add(payload) out[#out + 1], size = payload, size + #payload end
  for i = f.at, #f.next do
    local t = f.next[i]
    fair.first(f, t)
    for k = t.there + 1, #t.read do add(t.read[k]) end
    for k = (t.used or 0) + 1, f.fresh[t.place] and #f.fresh[t.place] or 0 do add(f.fresh[t.place][k]) end
    if size > fair.bytes then break end -- Go is asked for a limited amount
  end
  return out
end

-- ask requests from Go the missing names of the next payloads.
function fair.ask(f, payloads)
  ask(f.queue, f.byGo, payloads, function(payload) return fair.tenant(f.queue, payload, f.index) end)
end
