-- waits keeps a queue of locked jobs from being looked through again and again.
--
-- locket:queue_lock_counters holds, as resque-locket has it, how many jobs of a
-- queue were put back; here these are the jobs at its tail that are known to be
-- locked, so that a queue with a counter of its length has nothing to offer.
-- resqued:seen:<queue> is "<length when last looked at> <time of the first look>",
-- resqued:blocked:<queue> the locks in the way. What is known counts for patience:
-- should something have gone unnoticed (a foreign worker that took a job out of
-- the middle), the queue is looked through again.

local patience = 30000 -- ms
local probes = 64

-- forget_seen makes the next look at a queue begin at its head again.
local function forget_seen(prefix, queue)
  pcall_('HDEL', prefix .. 'locket:queue_lock_counters', queue)
  call('DEL', prefix .. 'resqued:seen:' .. queue, prefix .. 'resqued:blocked:' .. queue)
end

-- seen returns how many jobs at the tail of a queue are known to be locked, and how
-- long the queue was then; what was pushed since stands behind them. starved says
-- that there is any counter at all.
local function seen(prefix, queue, left, ms, starved)
  if not starved then return 0, left end
  local count = pcall_('HGET', prefix .. 'locket:queue_lock_counters', queue)
  count = type(count) == 'string' and tonumber(count) or 0
  if count <= 0 then return 0, left end
  local note = pcall_('GET', prefix .. 'resqued:seen:' .. queue)
  local mark, since = match(type(note) == 'string' and note or '', '^(%d+) (%d+)$')
  mark, since = tonumber(mark), tonumber(since)
  -- Nobody of ours has counted that, or it is too old.
  if not mark or ms - since > patience or ms < since then return 0, left end
  return math.min(count, left), math.min(mark, left), since
end

-- note_seen keeps what a look has found.
local function note_seen(prefix, queue, count, mark, since, locks)
  pcall_('HSET', prefix .. 'locket:queue_lock_counters', queue, count)
  pcall_('SET', prefix .. 'resqued:seen:' .. queue, fmt('%d %.0f', mark, since), 'PX', 2 * patience)
  local blocked = prefix .. 'resqued:blocked:' .. queue
  for lock in pairs(locks) do pcall_('SADD', blocked, lock) end
  pcall_('PEXPIRE', blocked, 2 * patience)
end

-- freed is told of every job lock that was released: queues that wait for it are
-- looked at again.
local function freed(prefix, locks)
  if #locks == 0 then return end
  local counters = prefix .. 'locket:queue_lock_counters'
  local n = pcall_('HLEN', counters)
  if type(n) ~= 'number' or n == 0 then return end
  if n > probes then -- as resque-locket does
    call('DEL', counters)
    return
  end
  for _, queue in ipairs(call('HKEYS', counters)) do
    local blocked = prefix .. 'resqued:blocked:' .. queue
    local size = pcall_('SCARD', blocked)
    if type(size) ~= 'number' or size == 0 then
      forget_seen(prefix, queue)
    else
      for _, lock in ipairs(locks) do
        if call('SISMEMBER', blocked, lock) == 1 then
          forget_seen(prefix, queue)
          break
        end
      end
    end
  end
end

-- blocked tells whether every job of a queue is known to be locked. It probes some
-- of the locks in the way: one may have expired, or a person may have removed it.
local function blocked(prefix, queue, left, ms, starved)
  local count, mark = seen(prefix, queue, left, ms, starved)
  if count < left or mark < left then return false end
  local set = prefix .. 'resqued:blocked:' .. queue
  local size = pcall_('SCARD', set)
  if type(size) ~= 'number' or size == 0 then return false end
  local locks = size <= probes and call('SMEMBERS', set) or call('SRANDMEMBER', set, probes)
  for _, lock in ipairs(locks) do
    if not held(prefix, lock) then
      forget_seen(prefix, queue)
      return false
    end
  end
  return true
end
