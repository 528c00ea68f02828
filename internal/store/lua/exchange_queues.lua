-- exchange_queues visits the queues in order until each want has a job, and returns the reply. A part of
-- exchange; see exchange_fast.
--
-- COST     per queue 2 or 3 commands

-- suspects takes a queue's suspects, without touching its own keys. Locked ones go to the tail. It returns
-- whether locks must be named.
function line.suspects(queue, room, capped, flags)
  local key, left = apartkey(prefix, queue), apart(prefix, queue)
  local scan, byGo, unnamed = math.min(left, bound, budget), find(flags, 'k', 1, true), false
  local requests = line.requests()
  while scan > 0 and room > 0 and w <= #asked and bytes < maxbytes do
    local element = call('LINDEX', key, 0)
    local payload, start = suspect(element)
    local lock = ''
    if find(flags, 'l', 1, true) then
      local name = nameof(queue, payload, byGo)
      if not name then
        local next = line.page(key, 0, bound, maxbytes)
        for i, other in ipairs(next) do next[i] = suspect(other) end
        ask(queue, byGo, next)
        unnamed = true
        break
      end
      lock = jobs .. name
    end
    scan, budget = scan - 1, budget - 1
    local value = me .. asked[w][1]
    if lock ~= '' and not take(lock, value) and not requests.claim(lock, payload, value) then
      if find(flags, 'q', 1, true) then requests.ask(lock, payload) end
      call('LPOP', key)
      call('RPUSH', key, element)
    elseif lock ~= '' and not fenced(lock) then
      break
    else
      call('LPOP', key)
      give(queue, payload, lock, start, capped, died(queue, payload))
      if lock ~= '' and find(flags, 'q', 1, true) then requests.forget(lock, payload) end
      room = room - 1
    end
  end
  reply[9] = reply[9] + apart(prefix, queue)
  return unnamed
end

-- roomin returns how many more threads a queue may occupy.
function line.roomin(queue, cap)
  if cap == 0 then return #asked end
  local n = tonumber(pcall_('HGET', capkey, queue) or 0)
  return cap - (n and n > 0 and n < 2 ^ 53 and math.floor(n) or 0)
end

if onsuspects == 'o' then call('PERSIST', info) end -- see register: a full server must not reject the rest
if not obstacles.calm and w <= #asked and pausing(prefix) then nqueue = 0 end
local relock = not obstacles.calm and w <= #asked and pcall_('ZCARD', prefix .. 'resqued:relock')
relock = type(relock) == 'number' and relock > 0

-- ready returns how many jobs of a queue may be taken, nil if its keys have wrong types.
function line.ready(queue, key, flags)
  local left, unique = len(key), find(flags, 'u', 1, true)
  if not left or unique and not utyped(key) or onsuspects == 'a' and not line.separable(queue) then
    table.insert(reply[6], queue)
    return nil
  end
  if unique and find(flags, 's', 1, true) and not instep(key, left) then
    table.insert(reply[7], queue)
    return 0
  end
  return left
end

-- visit takes jobs of the queue with an index. It returns whether locks or tenants must be named before
-- anything else is taken.
function line.visit(i, queue, key, cap, flags)
  local unique, left, room, unnamed, enough = find(flags, 'u', 1, true), line.ready(queue, key, flags), nil, nil, nil
  if not left then return false end
  if line.known and not relock and not line.paused(i) then
    room, unnamed = locklines.serve(queue, line.roomin(queue, cap), cap > 0, flags)
    if unnamed then return true end
  end
  room, left, unnamed, enough = fair.take(queue, key, left, room, cap, flags, unique)
  if unnamed and nnames == 0 then return true end
  if left == 0 then
    if starved and pcall_('HEXISTS', counters, queue) == 1 then forget_seen(prefix, queue) end
  elseif room and room <= 0 or w > #asked then -- lines have used the room
  elseif not enough and not line.paused(i) then
    room = room or line.roomin(queue, cap)
    local from = find(flags, 'l', 1, true) and not unique and locklines.begins(queue, flags) and locklines.intake or reserve
    return room > 0 and w <= #asked and from(queue, key, left, room, cap > 0, flags)
  end
  return false
end

for i = nextqueue, nqueue do
  if (w > #asked or bytes >= maxbytes) and onsuspects ~= 'o' then
    if w <= #asked then more = 1 end
    break
  end
  local queue, cap, flags = names[i], match(modes[i], '^(%d+)(%a*)$')
  local unnamed = false
  cap = tonumber(cap)
  if relock and find(flags, '[lf]') then
    -- A process may hold a lock that has expired, so the queue waits for a beat.
  elseif onsuspects == 'o' then
    unnamed = not paused(prefix, queue) and line.suspects(queue, line.roomin(queue, cap), cap > 0, flags)
  else
    unnamed = line.visit(i, queue, prefix .. 'queue:' .. queue, cap, flags)
  end
  if unnamed and nnames == 0 then break end
end
if fence == false then
  reasons[#reasons + 1] = fencekey .. ' holds no number that fencing tokens could go on from'
end
if line.known then line.known.flush() end
-- A thread waits, because jobs of other queues hold these locks.
for _, late in ipairs(w <= #asked and line.late or {}) do line.known.ask(late[1], late[2]) end
reply[2], reply[3] = bounced, more
return reply
end

return rest(nother, othersat, queuesat, sending, headends, repeated, fields, modes, nextqueue, wants, wantat, lead, tail, style)
