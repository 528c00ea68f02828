-- lines has jobs whose lock is held wait in a line for each lock, in the order in which they
-- were pushed, instead of at the tail of their queue, where every look would meet them again.
-- A job is in its queue or in one line, never in both.
--
-- In a queue whose tenants take turns (see fair) jobs wait in a line for each tenant before; from there
-- they are taken, or go to the line for their lock.
--
--   resqued:line:<length of queue>:<queue>:<name>
--                            list of the payloads that wait for the lock of that name
--   resqued:lines:<queue>    names of the queue's lines → since when each is there (ms)
--   resqued:ready:<queue>    those of them whose lock was released → their turn; who is served
--                            first has the lowest one
--   resqued:lined            queues that have any line → how many jobs wait in their lines
--   resqued:turn:<length of queue>:<queue>:<place>
--                            list of the payloads of one tenant; its place is "=" and the tenant, or "!":
--                            the jobs of all that came back, which are next
--   resqued:turns:<queue>    places → their turn; the lowest is the next. A tenant without jobs
--                            keeps its turn until that has come
--   resqued:turned           queues → how many of their jobs in lines wait for the turn of a tenant
--   resqued:awaited          name of a lock → the queues that have a line for it, as a list of
--                            "<length> <queue>"; the first one has its turn before the others, see ask
--   resqued:asks:<name>      the queue that asks for the lock of that name
--
-- Lines are served by every process that works the queue, whatever its settings: only who adds to
-- them depends on these. A lock that expires, or that a stranger removes, is noticed by a probe,
-- which each poll makes of some lines.
--
-- DEFINES  lines(prefix): a table of functions; they are defined when it is called, because most
--          calls need none of them:
--          list(queue, name): the list; count(queue): how many jobs wait in lines of a queue;
--          tenant(queue, place), turns(queue): the keys; begin(queue, name, ms), finish(queue,
--          name), leave(queue, places), add(queue, n, turned), flush(), less(queue,
--          line, n), ask(queue, name): no result; claim(queue, name, value, ttl): whether the lock is the queue's; what add was told is written by flush, which comes last; the name of a
--          line has an l in front there, the place of a tenant a t;
--          lead(queue, payload, lock): whether a job was put at the head of the line for its lock, or
--          before all tenants;
--          freed(locks, us, known): no result; open(queue, us): whether any line may be served; waits(queue): whether any tenant may have a job
-- NEEDS    base, records
-- KEYS     reads and writes those above; reads job locks and in-flight records
-- COST     count: 1 command; begin: 3; finish: 5; leave: 2 to 4; lead: 1 to 4; flush: 1 or 2 per queue; less: 2 to 7; ask: 1 to 3;
--          claim: 1 or 4; freed: 1 per 1,000 locks, and for one with lines 1, up to 5 more if a queue asks, and 1 per queue; open: 5 to 8, and 2 per process
--          that holds one of 64, and 1 or 2 per free lock

local function lines(prefix)
  local l = {bound = 100000, probes = 64}
  local turned = prefix .. 'resqued:turned'
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

  -- over forgets the counts of a queue that has no lines any more.
  local function over(queue)
    if pcall_('EXISTS', prefix .. 'resqued:lines:' .. queue, l.turns(queue)) ~= 0 then return end
    pcall_('HDEL', counts, queue)
    pcall_('HDEL', turned, queue)
    added[queue], turning[queue] = nil, nil
  end

  -- leave notes that tenants have no jobs, nor a turn.
  function l.leave(queue, places)
    pcall_('ZREM', l.turns(queue), unpack(places))
    over(queue)
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

  -- others returns the entry in awaited without a queue.
  local function others(queue, name)
    local rest = ''
    queued(kept('HGET', awaited, name), function(other)
      if other ~= queue then rest = rest .. fmt('%d ', #other) .. other end
    end)
    return rest
  end

  -- last puts a queue behind the others that wait for a lock.
  local function last(queue, name)
    kept('HSET', awaited, name, others(queue, name) .. fmt('%d ', #queue) .. queue)
  end

  -- begin notes that a queue has a line for a lock from now on.
  function l.begin(queue, name, ms)
    kept('ZADD', prefix .. 'resqued:lines:' .. queue, fmt('%.0f', ms), name)
    last(queue, name)
  end

  -- finish notes that a line is empty.
  function l.finish(queue, name)
    pcall_('ZREM', prefix .. 'resqued:lines:' .. queue, name)
    pcall_('ZREM', prefix .. 'resqued:ready:' .. queue, name)
    local rest = others(queue, name)
    if rest == '' then pcall_('HDEL', awaited, name) else pcall_('HSET', awaited, name, rest) end
    over(queue)
  end

  -- less counts n jobs of a line that others than serve have taken out of it.
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

  -- lead puts a job that comes back before those that wait for the lock that it had, or before
  -- all that wait for turns: its tenant has had the turn for it.
  function l.lead(queue, payload, lock)
    if sub(lock, 1, #locks) == locks then
      local n = pcall_('LPUSHX', l.list(queue, sub(lock, #locks + 1)), payload)
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

  -- The process that releases a lock serves its own line at once, before other processes can see that the lock is free. So
  -- a queue for which a thread waits asks for a lock that it finds held. When it has asked for wait (ms) the lock is
  -- kept for it, as "line:<queue>", with the next release: for hold (s), within which a process of the queue looks again.
  -- Otherwise the lock goes on to whichever looks first.
  local asks, wait, memory, hold = prefix .. 'resqued:asks:', 1000, 40000, '5'

  -- ask notes that a queue, which has a line for a lock, asks for it. Of several the first in awaited counts.
  function l.ask(queue, name)
    local other, first = pcall_('GET', asks .. name), nil
    if other == queue then return end
    if type(other) == 'string' then
      queued(pcall_('HGET', awaited, name), function(q)
        if not first and (q == queue or q == other) then first = q end
      end)
      if first ~= queue then return end
    end
    pcall_('SET', asks .. name, queue, 'PX', fmt('%d', memory))
  end

  -- keep keeps a lock that was released for the queue that asks for it. text is its entry in awaited.
  local function keep(name, text)
    local asking, waits = pcall_('GET', asks .. name), false
    if type(asking) ~= 'string' then return end
    queued(text, function(queue) waits = waits or queue == asking end)
    local left = pcall_('PTTL', asks .. name)
    if not waits or type(left) ~= 'number' or left > memory - wait then return end
    if pcall_('EXISTS', prefix .. 'resqued:request:' .. name) ~= 0 then return end -- a suspect goes first
    local set = pcall_('SET', locks .. name, 'line:' .. asking, 'NX', 'EX', hold)
    if set and not refused(set) then pcall_('DEL', asks .. name) end
  end

  -- claim gives a record of this process a lock that is kept for a queue. The other queues come before it then.
  function l.claim(queue, name, value, ttl)
    if pcall_('GET', locks .. name) ~= 'line:' .. queue then return false end
    call('SET', locks .. name, value, 'EX', ttl)
    last(queue, name)
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
        if text then keep(names[i], text) end
      end
    end
  end

  -- waits reports whether a tenant may have a job, and forgets the turns of some that have none.
  function l.waits(queue)
    local places, keys = pcall_('ZRANGE', l.turns(queue), '0', fmt('%d', l.probes - 1)), {}
    for i, place in ipairs(places.err and {} or places) do keys[i] = l.tenant(queue, place) end
    if #keys == 0 then return false end
    if pcall_('EXISTS', unpack(keys)) ~= 0 then return true end
    l.leave(queue, places)
    return #keys == l.probes
  end

  -- open reports whether a line of a queue may be served. It probes the locks of some of them, of
  -- many lines others each time, also where others are ready: under load some always are.
  function l.open(queue, us)
    local ready, key = prefix .. 'resqued:ready:' .. queue, prefix .. 'resqued:lines:' .. queue
    local n, all = pcall_('ZCARD', ready), pcall_('ZCARD', key)
    local waits = l.waits(queue)
    local open, noted = waits or type(n) == 'number' and n > 0, false
    if all == 0 and not waits then over(queue) end -- a right was missing when the last one ended
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
