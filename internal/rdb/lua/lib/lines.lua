-- lines keeps jobs whose lock is held in one line per lock, in push order. At the tail of their queue,
-- every look would meet them again. A job is in its queue or in one line, never in both.
--
-- If a queue's tenants take turns (see fair), jobs first wait in a line per tenant. From there they are
-- taken, or move to the line for their lock.
--
--   resqued:line:<length of queue>:<queue>:<name>
--                            list of payloads that wait for the lock of that name
--   resqued:lines:<queue>    names of the queue's lines → since when each exists (ms)
--   resqued:ready:<queue>    names of lines whose lock was released → their turn; the lowest is
--                            served first
--   resqued:lined            queues with lines → how many jobs wait in them
--   resqued:turn:<length of queue>:<queue>:<place>
--                            list of payloads of one tenant; the place is "=" and the tenant, or "!" for
--                            the jobs of all tenants that came back, which are next
--   resqued:turns:<queue>    places → their turn; the lowest is next. A tenant without jobs keeps its
--                            turn until it comes
--   resqued:turned           queues → how many of their jobs in lines wait for a tenant's turn
--   resqued:awaited          name of a lock → the queues with a line for it, a list of
--                            "<length> <queue>"; the first one has the next turn, see ask
--   resqued:gates            the names in awaited that are limits, see there
--   resqued:asks:<name>      the queue that asks for the lock of that name
--
-- Every process that works the queue serves its lines; its own settings only decide whether it adds to
-- them. line_locks gives locks to lines.
--
-- DEFINES  lines(prefix): a table of functions, created by the call because most scripts need none:
--          list(queue, name): the list; count(queue): how many jobs wait in lines of a queue;
--          tenant(queue, place), turns(queue): the keys; begin(queue, name, ms), finish(queue,
--          name), leave(queue, places), add(queue, n, turned), flush(), less(queue,
--          line, n): no result; what add was told is written by flush, which comes last; the name of a
--          line has an l in front there, the place of a tenant a t;
--          lead(queue, payload, locks): whether a job was put at the head of the line for one of its locks (or
--          limits, see there), or before all tenants;
--          waits(queue): whether any tenant may have a job;
--          and for line_locks kept(command, key, …): a reply; queued(text, fn), last(queue, name), over(queue): no result
-- NEEDS    base
-- KEYS     reads and writes those above but asks
-- COST     count: 1 command; begin: 3; finish: 5; leave: 2 to 4; lead: 1 to 4; flush: 1 or 2 per queue; less: 2 to 7; waits: 2 to 4

local function lines(prefix)
  local l = {bound = 100000, probes = 64}
  local turned, gates = prefix .. 'resqued:turned', prefix .. 'resqued:gates'
  local counts, awaited, locks = prefix .. 'resqued:lined', prefix .. 'resqued:awaited', prefix .. 'locket:job_locks:'

  -- kept is pcall for a key that only resqued uses: it replaces a key of another type.
  local function kept(command, key, ...)
    local got = pcall_(command, key, ...)
    if refused(got) and find(got.err, 'WRONGTYPE', 1, true) then
      pcall_('DEL', key)
      got = pcall_(command, key, ...)
    end
    return got
  end

  l.kept = kept

  function l.list(queue, name) return prefix .. 'resqued:line:' .. #queue .. ':' .. queue .. ':' .. name end

  function l.tenant(queue, place) return prefix .. 'resqued:turn:' .. #queue .. ':' .. queue .. ':' .. place end

  function l.turns(queue) return prefix .. 'resqued:turns:' .. queue end

  local added, turning = {}, {}

  function l.count(queue)
    return math.max((tonumber(pcall_('HGET', counts, queue) or 0) or 0) + (added[queue] or 0), 0)
  end

  function l.add(queue, n, turns)
    added[queue] = (added[queue] or 0) + n
    if turns then turning[queue] = (turning[queue] or 0) + turns end
  end

  function l.flush()
    for queue, n in pairs(added) do
      if n ~= 0 then kept('HINCRBY', counts, queue, fmt('%d', n)) end
    end
    for queue, n in pairs(turning) do
      if n ~= 0 then kept('HINCRBY', turned, queue, fmt('%d', n)) end
    end
    added, turning = {}, {}
  end

  -- over removes the counts of a queue without lines.
  function l.over(queue)
    if pcall_('EXISTS', prefix .. 'resqued:lines:' .. queue, l.turns(queue)) ~= 0 then return end
    pcall_('HDEL', counts, queue)
    pcall_('HDEL', turned, queue)
    added[queue], turning[queue] = nil, nil
  end

  -- leave notes that tenants have neither jobs nor a turn.
  function l.leave(queue, places)
    pcall_('ZREM', l.turns(queue), unpack(places))
    l.over(queue)
  end

  -- queued calls fn with each queue that has a line for a lock.
  function l.queued(text, fn)
    local i = 1
    while type(text) == 'string' do
      local n, at = match(text, '^(%d+) ()', i)
      if not n then return end
      i = at + tonumber(n)
      fn(sub(text, at, i - 1))
    end
  end

  -- others returns an entry of awaited without a queue.
  local function others(queue, name)
    local rest = ''
    l.queued(kept('HGET', awaited, name), function(other)
      if other ~= queue then rest = rest .. fmt('%d ', #other) .. other end
    end)
    return rest
  end

  -- last puts a queue behind the others that wait for a lock.
  function l.last(queue, name)
    kept('HSET', awaited, name, others(queue, name) .. fmt('%d ', #queue) .. queue)
  end

  -- begin notes that a queue now has a line for a lock.
  function l.begin(queue, name, ms)
    kept('ZADD', prefix .. 'resqued:lines:' .. queue, fmt('%.0f', ms), name)
    if find(name, '^[\1\2]') then kept('SADD', gates, name) end
    l.last(queue, name)
  end

  function l.finish(queue, name)
    pcall_('ZREM', prefix .. 'resqued:lines:' .. queue, name)
    pcall_('ZREM', prefix .. 'resqued:ready:' .. queue, name)
    local rest = others(queue, name)
    if rest == '' then
      pcall_('HDEL', awaited, name)
      if find(name, '^[\1\2]') then
        pcall_('SREM', gates, name)
        pcall_('HDEL', prefix .. 'resqued:room', name, '@' .. name, '#' .. name)
      end
    else
      pcall_('HSET', awaited, name, rest)
    end
    l.over(queue)
  end

  -- less counts n jobs that were taken out of a line other than by being served.
  function l.less(queue, line, n)
    local name = sub(line, 2)
    if sub(line, 1, 1) == 't' then
      l.add(queue, -n, -n)
      if pcall_('EXISTS', l.tenant(queue, name)) == 0 then l.leave(queue, {name}) end
    else
      l.add(queue, -n)
      if pcall_('EXISTS', l.list(queue, name)) == 0 then l.finish(queue, name) end
    end
    l.flush()
  end

  -- lead puts a job that comes back before the jobs that wait for a lock it had, or before all jobs that
  -- wait for turns: its tenant has already had the turn for it.
  function l.lead(queue, payload, had)
    for _, lock in ipairs(had) do
      local n = sub(lock, 1, #locks) == locks and pcall_('LPUSHX', l.list(queue, sub(lock, #locks + 1)), payload)
      if type(n) == 'number' and n > 0 then
        l.add(queue, 1)
        return true
      end
    end
    if pcall_('EXISTS', l.turns(queue)) ~= 1 or type(kept('ZADD', l.turns(queue), '-1', '!')) ~= 'number'
      or type(pcall_('LPUSH', l.tenant(queue, '!'), payload)) ~= 'number' then return false end
    l.add(queue, 1, 1)
    return true
  end

  -- waits reports whether a tenant may have a job, and removes some turns of tenants without jobs.
  function l.waits(queue)
    local places, keys = pcall_('ZRANGE', l.turns(queue), '0', fmt('%d', l.probes - 1)), {}
    for i, place in ipairs(places.err and {} or places) do keys[i] = l.tenant(queue, place) end
    if #keys == 0 then return false end
    if pcall_('EXISTS', unpack(keys)) ~= 0 then return true end
    l.leave(queue, places)
    return #keys == l.probes
  end

  return l
end
