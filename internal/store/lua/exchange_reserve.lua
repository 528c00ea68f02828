-- exchange_reserve takes jobs in place in their queue. It tries the jobs at the head first, moving locked ones to the
-- tail, then jobs pushed since the last look (see blocked_queues). A part of exchange; see exchange_fast.
--
-- DEFINES  reserve(queue, key, left, room, capped, flags): whether locks must be named
-- NEEDS    all parts before it
-- COST     3 commands per job that is checked, 3 more per job that is taken; at most the scan bound of jobs.
--          Newer jobs are taken in place: O(distance from the nearer end)

local looks = {}

-- begin returns the state of one look at a queue of left jobs for at most room wants.
function looks.begin(queue, key, left, room, capped, flags)
  local q = {
    queue = queue, key = key, left = left, room = room, capped = capped,
    locked = find(flags, 'l', 1, true), unique = find(flags, 'u', 1, true), byGo = find(flags, 'k', 1, true),
    blockedkey = prefix .. 'resqued:blocked:' .. queue, openkey = prefix .. 'resqued:open:' .. queue,
    -- Newer jobs are replaced by holes, which then leave the list together, from its nearer end.
    hole = '\0' .. redis.sha1hex(key .. ms), holes = 0,
    looked = 0, put = 0, took = 0, moved = 0, inway = {}, unnamed = false, opened = false, unnoted = false, askat = 0,
    scan = math.max(1, math.min(bound, budget)),
  }
  q.before = q.locked and seen(prefix, queue, left, ms, starved)
  -- If they are far from both ends, very many locks are open, or reading these is not allowed, this counts as a first
  -- look.
  local unlocked = q.before and pcall_('SRANDMEMBER', q.openkey, bounds.open + 1)
  q.unread = unlocked and (unlocked.err or #unlocked > bounds.open
    or math.min(q.before.mark, left - q.before.mark) > bounds.reach)
  if q.unread then q.before = nil end
  q.known = q.before or {count = 0, mark = left, since = ms}
  q.newer, q.unseen = left - q.known.mark, q.known.mark - q.known.count
  -- open are locks released since jobs were found locked by them. If all jobs were checked and these locks are held
  -- again, there is nothing to find.
  q.open, q.nopen = {}, 0
  for _, lock in ipairs(q.before and unlocked or {}) do
    q.open[lock] = true
    q.nopen = q.nopen + 1
  end
  if q.before and q.known.known and q.nopen == 0 then q.unseen = 0 end
  -- Names that Go must supply may be missing, so nothing may be popped first.
  q.direct = not q.byGo and nclasses == 0
  return q
end

function looks.lockof(q, payload)
  local name = nameof(q.queue, payload, q.byGo)
  if name then return jobs .. name end
  q.unnamed = true
end

-- shut notes that an open lock is held again.
function looks.shut(q, lock)
  if not q.open[lock] then return end
  q.open[lock], q.nopen = nil, q.nopen - 1
  pcall_('SREM', q.openkey, lock)
  q.inway[lock] = true
  if q.known.known and q.nopen == 0 then q.unseen = 0 end
end

-- out removes the job at index from the queue, and returns its start time.
function looks.out(q, index, popped, head, payload)
  local at = index - q.holes
  if popped then -- it is already out
  elseif head then
    removeat(q.key, at, q.left)
  else
    call('LSET', q.key, index, q.hole)
    q.holes = q.holes + 1
  end
  return q.unique and forget_member(q.key, at, payload, q.left) or '-'
end

-- bounce moves the locked job at the queue's head to the tail.
function looks.bounce(q, payload, popped)
  if not popped then call('LPOP', q.key) end
  call('RPUSH', q.key, payload)
  if q.unique then rotated(q.key) end
  q.put = q.put + 1
end

-- try takes the job at index. It returns true if the job was taken or quarantined, false if it is locked, nil if its
-- lock must be named first or has no fence, and the job stays. A locked job at the head goes to the tail.
function looks.try(q, index, head)
  local popped, lock = head and q.direct, ''
  local payload = popped and call('LPOP', q.key) or call('LINDEX', q.key, index)
  if head then q.unseen = q.unseen - 1 else q.newer = q.newer - 1 end
  local deaths, blame = died(q.queue, payload)
  if blame > 0 and onsuspects == 'a' then
    set_apart(prefix, q.queue, payload, looks.out(q, index, popped, head, payload))
    q.left, q.took, q.moved = q.left - 1, q.took + 1, q.moved + 1
    return true
  end
  if q.locked then
    lock = looks.lockof(q, payload)
    if not lock then return nil end
    local got = take(lock, me .. asked[w][1])
    if q.nopen > 0 then looks.shut(q, lock) end
    if not got then
      q.inway[lock] = true
      q.looked = q.looked + 1
      if head then looks.bounce(q, payload, popped) end
      return false
    elseif not fenced(lock) then
      if popped then call('LPUSH', q.key, payload) end
      return nil
    end
  end
  give(q.queue, payload, lock, looks.out(q, index, popped, head, payload), q.capped, deaths, blame)
  q.left, q.room, q.took = q.left - 1, q.room - 1, q.took + 1
  return true
end

function looks.going(q)
  return q.room > 0 and w <= #asked and bytes < maxbytes and not q.unnamed and (fence ~= false or not q.locked)
end

-- newer tries the jobs pushed since the last look.
function looks.newer(q)
  local index, n, unnamed = q.left - q.put - q.newer, 0, q.unnamed
  while q.newer > 0 and n + q.moved < q.scan and looks.going(q) do
    local got = looks.try(q, index, false)
    if got == nil then
      q.newer = q.newer + 1
    elseif not got then
      index, n = index + 1, n + 1
    else
      index = index + 1
    end
  end
  if q.holes > 0 then
    call('LREM', q.key, index < q.newer + q.put + q.holes and q.holes or -q.holes, q.hole)
    index, q.holes = index - q.holes, 0
  end
  -- Others went to the tail behind these, where these would no longer be found.
  while q.newer > 0 and q.put > 0 and n < q.scan and not q.unnamed do
    local lock = looks.lockof(q, call('LINDEX', q.key, index))
    if lock then
      if taken[lock] or held(prefix, lock) then
        q.inway[lock] = true
      else
        q.opened, q.open[lock] = true, nil -- the round has passed it
        q.unnoted = q.unnoted or refused(pcall_('SADD', q.openkey, lock)) or refused(pcall_('PEXPIRE', q.openkey, 2 * patience))
      end
      index, n, q.newer, q.looked = index + 1, n + 1, q.newer - 1, q.looked + 1
    end
  end
  if q.unnamed and not unnamed then q.askat = index end
end

-- note stores what a look has found, for the next one.
function looks.note(q)
  local s = q.known
  if q.locked and q.left == 0 then
    if q.before or q.unread or q.looked > 0 then forget_seen(prefix, q.queue) end
  elseif q.unnoted or q.unread and q.took > 0 and q.looked == 0 or q.newer > 0 and q.put > 0 then
    forget_seen(prefix, q.queue) -- unseen jobs are among the others
  elseif q.looked > 0 or q.before and q.took > 0 then
    s.mark = q.left - q.newer
    if q.unseen <= 0 then
      -- A whole round for open locks met no job for the rest of them.
      for lock in pairs(s.known and q.open or {}) do
        pcall_('SREM', q.openkey, lock)
        q.nopen = q.nopen - 1
      end
      s.known, s.count = true, (q.nopen > 0 or q.opened) and 0 or s.mark
    else
      s.count = s.known and q.opened and 0 or math.min(s.count + q.looked, s.mark)
    end
    if not q.before then call('UNLINK', q.blockedkey, q.openkey) end
    note_seen(prefix, q.queue, s, q.inway)
    starved = true
  end
end

local function reserve(queue, key, left, room, capped, flags)
  if find(flags, 'l', 1, true) and fence == false then return false end
  local q = looks.begin(queue, key, left, room, capped, flags)
  if not q.direct or q.newer > 0 then call('PERSIST', info) end -- see register: a full server must not reject the rest
  while q.unseen > 0 and q.looked + q.moved < q.scan and looks.going(q) do
    if looks.try(q, 0, true) == nil then q.unseen = q.unseen + 1 end
  end
  if q.newer > 0 and (q.unseen <= 0 or q.put > 0) then looks.newer(q) end
  if q.locked and fence == false then
    -- Some jobs were put back, so what was known of the queue is out of date.
    if q.before or q.looked + q.moved > 0 then forget_seen(prefix, queue) end
    q.unnamed = false
  else
    if q.unnamed then
      -- A caller that has asked before lets other queues have their turn.
      ask(queue, q.byGo, line.page(key, q.askat, q.scan, maxbytes))
    elseif (q.unseen > 0 or q.newer > 0) and w <= #asked and q.room > 0 then
      more = 1
    end
    looks.note(q)
  end
  bounced, budget = bounced + q.put, budget - q.looked - q.moved
  if q.moved > 0 then reply[9] = reply[9] + apart(prefix, queue) end
  return q.unnamed
end
