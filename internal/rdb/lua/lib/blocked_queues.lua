-- blocked_queues keeps a queue of locked jobs from being looked through again and again.
--
-- locket:queue_lock_counters holds, as resque-locket has it, how many jobs of a
-- queue were found locked; here these stand at its tail, so that a queue with a
-- counter of its length has nothing to offer. Beside it:
--
--   resqued:seen:<queue>     "<mark> <since> <count> <known>": the length when last
--                            looked at, when that began, the counter, and whether
--                            (1) every job of these is locked by one of the next two
--   resqued:blocked:<queue>  the locks in the way
--   resqued:open:<queue>     those of them that were released since: of the jobs
--                            that were looked at only one with these can be free
--
-- What is known counts for patience, should something have gone unnoticed; and not
-- for long if a stranger has put back or taken out jobs meanwhile.
--
-- DEFINES  patience (ms), bounds: numbers; forget_seen(prefix, queue): no result;
--          starving(prefix): whether any queue may have a counter;
--          seen(prefix, queue, left, ms, starved): {count, mark, since, known} or nil;
--          note_seen(prefix, queue, seen, inway): no result, inway has locks as its keys;
--          freed(prefix, locks, ms): no result;
--          blocked(prefix, queue, left, ms, starved): whether every job is known to be locked
-- NEEDS    base, records
-- KEYS     reads and writes those above; reads job locks and in-flight records
-- COST     forget_seen, seen: 2 commands; note_seen: 3, and 1 per lock; freed: 1 where no queue
--          has a counter, else 2, and about 2 per queue and lock; blocked: about 5, and 2 per
--          lock of 64 at most

local patience, distrust = 30000, 1000 -- ms
-- How many queues, or locks, are asked about at once; how many locks may be open; how far
-- from the nearer end of a queue jobs may stand that are taken where they are.
local bounds = {probes = 64, open = 1000, reach = 10000}

-- forget_seen makes the next look at a queue begin at its head again.
local function forget_seen(prefix, queue)
  pcall_('HDEL', prefix .. 'locket:queue_lock_counters', queue)
  call('UNLINK', prefix .. 'resqued:seen:' .. queue, prefix .. 'resqued:blocked:' .. queue,
    prefix .. 'resqued:open:' .. queue)
end

-- countedqueues returns how many queues have a counter, or nil if the user may not ask. Where the
-- counters are not a hash nothing is known of any queue.
local function countedqueues(prefix)
  local n = pcall_('HLEN', prefix .. 'locket:queue_lock_counters')
  if type(n) == 'number' then return n end
  return find(n.err, 'WRONGTYPE', 1, true) and 0 or nil
end

-- starving reports whether any queue may have a counter: if not, nothing else is asked.
local function starving(prefix) return countedqueues(prefix) ~= 0 end

-- seen returns what is known of a queue of left jobs, or nil. starved says that
-- there is any counter at all.
local function seen(prefix, queue, left, ms, starved)
  if not starved then return nil end
  local counter = pcall_('HGET', prefix .. 'locket:queue_lock_counters', queue)
  if type(counter) ~= 'string' then return nil end
  local note = pcall_('GET', prefix .. 'resqued:seen:' .. queue)
  if type(note) ~= 'string' then return nil end
  local mark, since, count, known = match(note, '^(%d+) (%d+) (%d+) ([01])$')
  if not mark then return nil end
  mark, since = tonumber(mark), tonumber(since)
  local trust = (count == counter and left >= mark) and patience or distrust
  if ms - since > trust or ms < since then return nil end
  mark = math.min(mark, left)
  return {count = math.min(tonumber(count), mark), mark = mark, since = since, known = known == '1'}
end

-- note_seen keeps what is known, or nothing of it; inway are locks that were found held.
local function note_seen(prefix, queue, s, inway)
  local blocked = prefix .. 'resqued:blocked:' .. queue
  local bad = refused(pcall_('HSET', prefix .. 'locket:queue_lock_counters', queue, s.count))
    or refused(pcall_('SET', prefix .. 'resqued:seen:' .. queue,
      fmt('%d %.0f %d %d', s.mark, s.since, s.count, s.known and 1 or 0), 'PX', 2 * patience))
  for lock in pairs(inway) do bad = bad or refused(pcall_('SADD', blocked, lock)) end
  if bad or refused(pcall_('PEXPIRE', blocked, 2 * patience)) then forget_seen(prefix, queue) end
end

-- reopen notes that locks are free that may stand in the way of a queue.
local function reopen(prefix, queue, ms, locks)
  local s = seen(prefix, queue, 2 ^ 52, ms, true)
  if not s then return forget_seen(prefix, queue) end
  local hit, open = false, prefix .. 'resqued:open:' .. queue
  for _, lock in ipairs(locks) do
    local was = pcall_('SREM', prefix .. 'resqued:blocked:' .. queue, lock)
    if refused(was) or was == 1 and refused(pcall_('SADD', open, lock)) then return forget_seen(prefix, queue) end
    hit = hit or was == 1
  end
  if not hit then return end
  if refused(pcall_('PEXPIRE', open, 2 * patience)) then return forget_seen(prefix, queue) end
  -- A first look goes on to its end; then comes the search for what is open.
  if s.known then s.count = 0 end
  note_seen(prefix, queue, s, {})
end

-- freed has the queues that wait for some job locks looked at again. It is called for every
-- job lock that was released.
local function freed(prefix, locks, ms)
  if #locks == 0 then return end
  local counters, n = prefix .. 'locket:queue_lock_counters', countedqueues(prefix)
  if n == 0 then return end
  local queues = n and n <= bounds.probes and pcall_('HKEYS', counters)
  if not queues or queues.err then -- as resque-locket does
    call('UNLINK', counters)
    return
  end
  for _, queue in ipairs(queues) do reopen(prefix, queue, ms, locks) end
end

-- blocked reports whether every job of a queue is known to be locked. It probes some
-- of the locks in the way: one may have expired, or a person may have removed it.
local function blocked(prefix, queue, left, ms, starved)
  local s = seen(prefix, queue, left, ms, starved)
  if not s or not s.known or s.mark < left then return false end
  if pcall_('EXISTS', prefix .. 'resqued:open:' .. queue) ~= 0 then return false end
  local set = prefix .. 'resqued:blocked:' .. queue
  local size = pcall_('SCARD', set)
  if type(size) ~= 'number' or size == 0 then return false end
  local locks = size <= bounds.probes and call('SMEMBERS', set) or call('SRANDMEMBER', set, bounds.probes)
  local free = {}
  for _, lock in ipairs(locks) do
    if not held(prefix, lock) then free[#free + 1] = lock end
  end
  if #free == 0 then return true end
  reopen(prefix, queue, ms, free)
  return false
end
