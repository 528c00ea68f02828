-- lines has jobs whose lock is held wait in a line for each lock, in the order in which they
-- were pushed, instead of at the tail of their queue, where every look would meet them again.
-- A job is in its queue or in one line, never in both.
--
--   resqued:line:<length of queue>:<queue>:<name>
--                            list of the payloads that wait for the lock of that name
--   resqued:lines:<queue>    names of the queue's lines → since when each is there (ms)
--   resqued:ready:<queue>    those of them whose lock was released → their turn; who is served
--                            first has the lowest one
--   resqued:lined            queues that have any line → how many jobs wait in their lines
--   resqued:awaited          name of a lock → the queues that have a line for it, as a list of
--                            "<length> <queue>"
--
-- Lines are served by every process that works the queue, whatever its settings: only who adds to
-- them depends on these. A lock that expires, or that a stranger removes, is noticed by a probe,
-- which each poll makes of some lines.
--
-- DEFINES  lines(prefix): a table of functions; they are defined when it is called, because most
--          calls need none of them:
--          list(queue, name): the list; count(queue): how many jobs wait in lines of a queue;
--          begin(queue, name, ms), finish(queue, name), add(queue, n), flush(), less(queue,
--          name, n): no result; what add was told is written by flush, which comes last;
--          lead(queue, payload, lock): whether a job was put at the head of the line for its lock;
--          freed(locks, us, known): no result; open(queue, us): whether any line may be served
-- NEEDS    base, records
-- KEYS     reads and writes those above; reads job locks and in-flight records
-- COST     count: 1 command; begin: 3; finish: 5; lead: 1; flush: 1 per queue; less: 2 to 7; freed: 1 per 1,000
--          locks, and 1 per queue with a line for one; open: 4, and 2 per process
--          that holds one of 64, and 1 or 2 per free lock

local function lines(prefix)
  local l = {bound = 100000, probes = 64}
  local counts, awaited, locks = prefix .. 'resqued:lined', prefix .. 'resqued:awaited', prefix .. 'locket:job_locks:'

  -- kept is pcall for a key that only resqued uses: one of another type is none of it.
  local function kept(command, key, ...)
    local got = pcall_(command, key, ...)
    if refused(got) and find(got.err, 'WRONGTYPE', 1, true) then
      pcall_('DEL', key)
      got = pcall_(command, key, ...)
    end
    return got
  end

  function l.list(queue, name) return prefix .. 'resqued:line:' .. #queue .. ':' .. queue .. ':' .. name end

  function l.count(queue)
    return math.max(tonumber(pcall_('HGET', counts, queue) or 0) or 0, 0)
  end

  local added = {}

  function l.add(queue, n) added[queue] = (added[queue] or 0) + n end

  function l.flush()
    for queue, n in pairs(added) do
      if n ~= 0 then kept('HINCRBY', counts, queue, fmt('%d', n)) end
    end
    added = {}
  end

  -- queued calls a function with each queue that has a line for a lock.
  local function queued(text, fn)
    local i = 1
    while type(text) == 'string' do
      local n, at = match(text, '^(%d+) ()', i)
      if not n then return end
      i = at + tonumber(n)
      fn(sub(text, at, i - 1))
    end
  end

  -- begin notes that a queue has a line for a lock from now on.
  function l.begin(queue, name, ms)
    kept('ZADD', prefix .. 'resqued:lines:' .. queue, fmt('%.0f', ms), name)
    local others, own = kept('HGET', awaited, name), fmt('%d ', #queue) .. queue
    queued(others, function(other) if other ~= queue then own = own .. fmt('%d ', #other) .. other end end)
    kept('HSET', awaited, name, own)
  end

  -- finish notes that a line is empty.
  function l.finish(queue, name)
    local key, rest = prefix .. 'resqued:lines:' .. queue, ''
    pcall_('ZREM', key, name)
    pcall_('ZREM', prefix .. 'resqued:ready:' .. queue, name)
    queued(pcall_('HGET', awaited, name), function(other)
      if other ~= queue then rest = rest .. fmt('%d ', #other) .. other end
    end)
    if rest == '' then pcall_('HDEL', awaited, name) else pcall_('HSET', awaited, name, rest) end
    if pcall_('EXISTS', key) == 0 then
      pcall_('HDEL', counts, queue)
      added[queue] = nil
    end
  end

  -- less counts n jobs of a line that others than serve have taken out of it.
  function l.less(queue, name, n)
    l.add(queue, -n)
    if pcall_('EXISTS', l.list(queue, name)) == 0 then l.finish(queue, name) end
    l.flush()
  end

  -- lead puts a job that comes back before those that wait for the lock that it had.
  function l.lead(queue, payload, lock)
    if sub(lock, 1, #locks) ~= locks then return false end
    local n = pcall_('LPUSHX', l.list(queue, sub(lock, #locks + 1)), payload)
    if type(n) ~= 'number' or n == 0 then return false end
    l.add(queue, 1)
    return true
  end

  -- turn is that of a line whose lock was released. Such lines have theirs in this order.
  local function turn(us, i) return fmt('%.0f', us + i - 9e15) end

  -- freed notes that locks were released. It is called for every lock that was. known is what
  -- awaited has of them, if the caller has asked.
  function l.freed(released, us, known)
    for from = 1, #released, 1000 do
      local names = {}
      for i = from, math.min(from + 999, #released) do
        names[#names + 1] = sub(released[i], #locks + 1)
      end
      local found = known or pcall_('HMGET', awaited, unpack(names))
      for i, text in ipairs(found.err and {} or found) do
        queued(text, function(queue)
          kept('ZADD', prefix .. 'resqued:ready:' .. queue, turn(us, from + i), names[i])
        end)
      end
    end
  end

  -- open reports whether a line of a queue may be served. It probes the locks of some of them, of
  -- many lines others each time, also where others are ready: under load some always are.
  function l.open(queue, us)
    local ready, key = prefix .. 'resqued:ready:' .. queue, prefix .. 'resqued:lines:' .. queue
    local n, all = pcall_('ZCARD', ready), pcall_('ZCARD', key)
    local open, noted = type(n) == 'number' and n > 0, false
    if all == 0 then pcall_('HDEL', counts, queue) end -- a right was missing when the last one ended
    if type(all) ~= 'number' or all == 0 then return open end
    local from = us % math.ceil(all / l.probes) * l.probes
    local names = call('ZRANGE', key, fmt('%d', from), fmt('%d', from + l.probes - 1))
    local keys = {}
    for i, name in ipairs(names) do keys[i] = locks .. name end
    local values, holders = call('MGET', unpack(keys)), {}

    local function free(i)
      if not noted then pcall_('PERSIST', ready) end -- a full server does not refuse what follows
      kept('ZADD', ready, 'NX', turn(us, i), names[i]) -- one that is ready keeps its turn
      open, noted = true, true
    end

    for i = 1, #names do
      -- As held in records: one whose record is gone is in no job's way.
      local p, t = match(values[i] or '', '^resqued:(.*)#([^#]*)$')
      if p then
        local h = holders[p] or {tokens = {}, at = {}}
        holders[p], h.tokens[#h.tokens + 1], h.at[#h.at + 1] = h, t, i
      elseif not values[i] and call('EXISTS', keys[i]) == 0 then
        free(i)
      end
    end
    for p, h in pairs(holders) do
      local there = pcall_('HMGET', prefix .. 'resqued:inflight:' .. p, unpack(h.tokens))
      local lease = pcall_('ZSCORE', prefix .. 'resqued:procs', p) or '0'
      for k, i in ipairs(there.err and {} or h.at) do
        if not there[k] or lease == '0' and not held(prefix, keys[i]) then free(i) end
      end
    end
    return open
  end

  return l
end
