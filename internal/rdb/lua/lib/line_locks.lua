-- line_locks gives locks to the lines of jobs that wait for them; see lines. A lock that expires or
-- is removed by another program is noticed by a probe: each poll probes some lines. Lines for limits
-- are ready when jobs under the limit end; see limits.
--
-- DEFINES  linelocks(prefix): what lines returns, and in that table
--          ask(queue, name): no result; claim(queue, name, value, ttl): whether the lock is the queue's;
--          freed(locks, us, known): no result; open(queue, us): whether any line may be served
-- NEEDS    base, records, lines, limits
-- KEYS     reads and writes resqued:asks:, resqued:ready:, resqued:awaited, resqued:room; reads job locks and in-flight records
-- COST     ask: 1 to 3; claim: 1 or 4; freed: 1 per 1,000 locks, and for one with lines 1, up to 5 more if a
--          queue asks, and 1 per queue; open: 5 to 8, and 2 per process that holds one of 64, and 1 or 2 per free lock

local function linelocks(prefix)
  local l, awaited, locks = lines(prefix), prefix .. 'resqued:awaited', prefix .. 'locket:job_locks:'

  -- The process that releases a lock serves its own line at once, before other processes see the lock as
  -- free. So a queue with a waiting thread asks for a lock that it finds held. Once it has asked for
  -- wait (ms), the next release keeps the lock for it, as "line:<queue>", for hold (s). In that time a
  -- process of the queue looks again; otherwise the first process to look gets the lock.
  local asks, wait, memory, hold = prefix .. 'resqued:asks:', 1000, 40000, '5'

  -- ask notes that a queue with a line for a lock asks for it. Of several queues, the first in awaited counts.
  function l.ask(queue, name)
    local other, first = pcall_('GET', asks .. name), nil
    if other == queue then return end
    if type(other) == 'string' then
      l.queued(pcall_('HGET', awaited, name), function(q)
        if not first and (q == queue or q == other) then first = q end
      end)
      if first ~= queue then return end
    end
    pcall_('SET', asks .. name, queue, 'PX', fmt('%d', memory))
  end

  -- keep keeps a released lock for the queue that asks for it. text is its entry in awaited.
  local function keep(name, text)
    local asking, waits = pcall_('GET', asks .. name), false
    if type(asking) ~= 'string' then return end
    l.queued(text, function(queue) waits = waits or queue == asking end)
    local left = pcall_('PTTL', asks .. name)
    if not waits or type(left) ~= 'number' or left > memory - wait then return end
    if pcall_('EXISTS', prefix .. 'resqued:request:' .. name) ~= 0 then return end -- a suspect goes first
    local set = pcall_('SET', locks .. name, 'line:' .. asking, 'NX', 'EX', hold)
    if set and not refused(set) then pcall_('DEL', asks .. name) end
  end

  -- claim gives a record of this process a lock kept for a queue. The other queues then come before it.
  function l.claim(queue, name, value, ttl)
    if pcall_('GET', locks .. name) ~= 'line:' .. queue then return false end
    call('SET', locks .. name, value, 'EX', ttl)
    l.last(queue, name)
    return true
  end

  -- turn is the turn of a line whose lock was released; such lines are served in the order of release.
  local function turn(us, i) return fmt('%.0f', us + i - 9e15) end

  -- freed must be called for every released lock. known is the locks' entries in awaited, if the caller has
  -- read them.
  function l.freed(released, us, known)
    for from = 1, #released, 1000 do
      local names = {}
      for i = from, math.min(from + 999, #released) do
        names[#names + 1] = sub(released[i], #locks + 1)
      end
      local found = known or pcall_('HMGET', awaited, unpack(names))
      for i, text in ipairs(found.err and {} or found) do
        l.queued(text, function(queue)
          l.kept('ZADD', prefix .. 'resqued:ready:' .. queue, turn(us, from + i), names[i])
        end)
        if text and slots.named(names[i]) then
          l.kept('HINCRBY', prefix .. 'resqued:room', names[i], '1')
        elseif text then
          keep(names[i], text)
        end
      end
    end
  end

  -- open reports whether a line of a queue may be served. It probes some locks, of many lines different
  -- ones each time. It also does so if lines are ready: under load, some always are.
  function l.open(queue, us)
    local ready, key = prefix .. 'resqued:ready:' .. queue, prefix .. 'resqued:lines:' .. queue
    local n, all = pcall_('ZCARD', ready), pcall_('ZCARD', key)
    local waits = l.waits(queue)
    local open, noted = waits or type(n) == 'number' and n > 0, false
    if all == 0 and not waits then l.over(queue) end -- a right was missing when the last line ended
    if type(all) ~= 'number' or all == 0 then return open end
    local from = us % math.ceil(all / l.probes) * l.probes
    local names = call('ZRANGE', key, fmt('%d', from), fmt('%d', from + l.probes - 1))
    local keys = {}
    for i, name in ipairs(names) do keys[i] = locks .. name end
    local values, holders = call('MGET', unpack(keys)), {}

    local function free(i)
      if not noted then pcall_('PERSIST', ready) end -- a full server then accepts the rest
      l.kept('ZADD', ready, 'NX', turn(us, i), names[i]) -- a ready line keeps its turn
      open, noted = true, true
    end

    for i = 1, #names do
      -- As in held: a lock without its record is not in the way.
      local p, t = match(values[i] or '', '^resqued:(.*)#([^#]*)$')
      if slots.named(names[i]) then
        if slots.probe(prefix, names[i], math.floor(us / 1000)) then free(i) end
      elseif p then
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
