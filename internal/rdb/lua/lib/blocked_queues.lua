-- blocked_queues keeps pollers from searching a queue of locked jobs again and again.
--
-- As in resque-locket, locket:queue_lock_counters counts the jobs of a queue that were found locked.
-- Here they are at the queue's tail, so a queue whose counter equals its length has nothing to
-- offer. In addition:
--
--   resqued:seen:<queue>     "<mark> <since> <count> <known>": the length at the last look, when
--                            the first look began, the counter, and whether (1) every counted job
--                            is locked by a lock in one of the next two
--   resqued:blocked:<queue>  the locks in the way
--   resqued:open:<queue>     locks of these that were released since: of the jobs seen, only jobs
--                            with these locks can be free
--
-- This knowledge expires after patience, in case a change went unnoticed, and soon if another program
-- has added or taken jobs.
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
-- probes bounds the queues, or locks, checked at once; open the locks that may be open; reach how far
-- from the nearer end of a queue jobs are taken in place.
local bounds = {probes = 64, open = 1000, reach = 10000}

-- forget_seen makes the next look at a queue start at its head.
local function forget_seen(prefix, queue)
  pcall_('HDEL', prefix .. 'locket:queue_lock_counters', queue)
  call('UNLINK', prefix .. 'resqued:seen:' .. queue, prefix .. 'resqued:blocked:' .. queue,
    prefix .. 'resqued:open:' .. queue)
end

-- countedqueues returns how many queues have a counter, or nil without the right to ask. A key of
-- another type means none.
local function countedqueues(prefix)
  local n = pcall_('HLEN', prefix .. 'locket:queue_lock_counters')
  if type(n) == 'number' then return n end
  return find(n.err, 'WRONGTYPE', 1, true) and 0 or nil
end

local function starving(prefix) return countedqueues(prefix) ~= 0 end

-- seen returns what is known of a queue with left jobs, or nil. starved: there are counters at all.
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

-- note_seen stores what is known, or forgets it if that fails; inway are locks found held.
local function note_seen(prefix, queue, s, inway)
  local blocked = prefix .. 'resqued:blocked:' .. queue
  local bad = refused(pcall_('HSET', prefix .. 'locket:queue_lock_counters', queue, s.count))
    or refused(pcall_('SET', prefix .. 'resqued:seen:' .. queue,
      fmt('%d %.0f %d %d', s.mark, s.since, s.count, s.known and 1 or 0), 'PX', 2 * patience))
  for lock in pairs(inway) do bad = bad or refused(pcall_('SADD', blocked, lock)) end
  if bad or refused(pcall_('PEXPIRE', blocked, 2 * patience)) then forget_seen(prefix, queue) end
end

-- reopen notes that locks in the way of a queue are free.
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
  -- A first look continues to its end; then comes the search for open locks.
  if s.known then s.count = 0 end
  note_seen(prefix, queue, s, {})
end

-- freed makes pollers look again at the queues blocked by some job locks. It must be called for every released
-- job lock.
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

-- blocked reports whether every job of a queue is known to be locked. It probes some of the locks:
-- one may have expired or been removed.
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
