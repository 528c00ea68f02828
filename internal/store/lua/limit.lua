-- limit decides which of the jobs that a process has just taken may begin under their limits: all limits of a job
-- count it, or none. Others go to the line of the first limit in the way, or the process ends them. It may be repeated.
--
-- Concurrency counts jobs that run; see limits. A rate is a bucket (GCRA): each unit takes some time to come back,
-- and at most burst units are there at once.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   grace of jobs that a newer one replaces (ms)
-- ARGV[4…]  per job: token, the name of the limit's line whose next it was, l if it was the next of a lock's line,
--           else '', number of its limits; per limit: rule, gate, scope
--           or '', concurrency or '-', µs per unit or '-', burst, cost, what to do (w wait, p wait and kill the
--           oldest job in the way, e the process ends it)
-- RETURNS   {ms until a job that waits may go or -1, one text per job, …}: '+' it may begin, '+c' it may and counts
--           under a concurrency; '-' it has no record any more: an earlier try has put it into a line; 'w <limit>' it
--           waits for that limit, counted from 1; 'e <limit> <ms until it may go or -1>' it is over that limit;
--           'n <limit>' a newer job waits that replaces it
-- COST      1 command, and per job 2, per limit of a job 3 or 4; per distinct limit of a call 5, and 10 if it is full;
--           5 to 10 per job that waits, and those of freed

local prefix, proc, grace = ARGV[1], ARGV[2], ARGV[3]
local ms, us = now()
local known, released, gates, results, throttled = linelocks(prefix), {}, {}, {}, {}
local apart = pcall_('EXISTS', prefix .. 'resqued:suspects') == 1
local late = 500000 -- µs; jobs that have waited may go this much later than their time without loss of rate
call('PERSIST', KEYS[1]) -- see register: a full server must not reject the rest

-- override returns what people have set for a gate or its rule, until when (ms), or nil.
local function override(rule, gate)
  local texts = pcall_('HMGET', prefix .. 'resqued:limits', gate, rule)
  for i, field in ipairs({gate, rule}) do
    local till, concurrency, every, burst = match(type(texts[i]) == 'string' and texts[i] or '', '^(%d+) (%S+) (%S+) (%S+)$')
    if till and tonumber(till) > ms then return tonumber(till), concurrency, every, burst end
    if till then pcall_('HDEL', prefix .. 'resqued:limits', field) end
  end
end

-- state reads what is known of a limit, once a call.
local function state(at)
  local rule, gate, scope = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local g = gates[gate .. '\0' .. scope]
  if g then return g end
  local till, concurrency, every, burst = override(rule, gate)
  local closed = tonumber(pcall_('HGET', prefix .. 'resqued:closed', gate) or 0) or 0
  if closed > ms then
    till, concurrency = closed, '0'
  elseif closed > 0 then
    pcall_('HDEL', prefix .. 'resqued:closed', gate)
  end
  g = {
    rule = rule, name = (scope == '' and '\1' or '\2') .. gate, scope = scope, key = prefix .. 'resqued:limit:' .. gate .. scope,
    rate = prefix .. 'resqued:rate:' .. gate .. scope, till = till, back = {},
    most = tonumber(concurrency and concurrency ~= '-' and concurrency or ARGV[at + 3]),
    every = tonumber(every and every ~= '-' and every or ARGV[at + 4]),
    burst = tonumber(burst and burst ~= '-' and burst or ARGV[at + 5]), mark = prefix .. 'resqued:limit:full:' .. proc .. ':' .. gate,
  }
  gates[gate .. '\0' .. scope] = g
  if g.most then
    g.running = known.kept('ZCARD', g.key)
    if g.running >= g.most then g.running = g.running - slots.dead(prefix, g.key) end
    g.held = apart and pcall_('EXISTS', prefix .. 'resqued:limit:hold:' .. g.name) == 1
  end
  if g.every then
    local paid = known.kept('GET', g.rate)
    g.paid = tonumber(type(paid) == 'string' and paid or nil)
  end
  return g
end

-- ahead returns how many jobs of a queue wait for a limit.
local function ahead(g, queue)
  local n = pcall_('LLEN', known.list(queue, g.name))
  return (type(n) == 'number' and n or 0) + #(g.back[queue] or {})
end

-- paid returns when all starts are paid for after one more of that cost.
local function paid(g, cost, passed)
  local from = math.max(g.paid or 0, us - (passed and g.paid and late or 0))
  -- If the server's clock was set back, the bucket is empty at worst.
  return math.min(from, us + g.every * math.max(g.burst, cost)) + g.every * cost
end

-- over returns r if the rate is in the way of a job, c the concurrency, else nil; and when it may no longer be (ms), or
-- nil. An override may give a burst below the job's cost.
local function over(g, cost, passed)
  if g.most and g.running >= g.most then return 'c', g.till end
  if g.every then
    local missing = paid(g, cost, passed) - us - g.every * math.max(g.burst, cost)
    if missing > 0 then return 'r', math.ceil((us + missing) / 1000) end
  end
end

-- takeover asks the oldest job under a limit to end. One is enough: of all that wait, only the newest will run.
local function takeover(g)
  local oldest = pcall_('ZRANGE', g.key, '0', '7')
  if oldest.err or #oldest == 0 then return end
  for _, member in ipairs(oldest) do
    local p, token = match(member, '^(.*)#([^#]*)$')
    if p and pcall_('HEXISTS', prefix .. 'resqued:kills:' .. p, token) ~= 0 then return end
  end
  local p, token = match(oldest[1], '^(.*)#([^#]*)$')
  local kills, ttl = p and prefix .. 'resqued:kills:' .. p, tonumber(grace) + 600000
  if kills and type(pcall_('HSET', kills, token, grace .. ' 0')) == 'number' and call('PTTL', kills) < ttl then
    call('PEXPIRE', kills, ttl)
  end
end

-- line puts jobs at an end of the line of a limit.
local function line(g, queue, command, payloads)
  local n = call(command, known.list(queue, g.name), unpack(payloads))
  if n == #payloads then known.begin(queue, g.name, ms) end
  known.add(queue, #payloads)
end

-- stuck returns which key has a type that does not let a job wait, or nil; the process then ends the job.
local function stuck(g, record)
  if record.start ~= '-' then return delayobstacle(prefix, record.queue, true, ms + 1000) end
  return notlist(known.list(record.queue, g.name))
end

-- wait puts a job that was taken in the line of a limit, first if it was the next there.
local function wait(g, record, token, first, at)
  call('HDEL', KEYS[1], token)
  if record.lock ~= '' then
    release(record.lock, owner(proc, token))
    released[#released + 1] = record.lock
  end
  uncap(prefix, record.cap, record.queue)
  if record.start ~= '-' then -- lines do not know unique queues
    delay(prefix, record.queue, record.payload, true, ms + 1000, proc .. '#' .. token)
    return
  end
  g.at = at and math.min(at, g.at or at) or g.at
  if first then
    g.back[record.queue] = g.back[record.queue] or {}
    table.insert(g.back[record.queue], 1, record.payload)
  else
    line(g, record.queue, 'RPUSH', {record.payload})
  end
end

-- begin counts a job under its limits, and returns its result.
local function begin(token, list, passed, suspect)
  local text = ''
  for _, l in ipairs(list) do
    local g = l.gate
    if g.most then
      known.kept('ZADD', g.key, fmt('%.0f', ms), proc .. '#' .. token)
      g.running, text = g.running + 1, text .. held_pack(g.name, g.scope)
      if suspect then call('DEL', prefix .. 'resqued:limit:hold:' .. g.name) end
    end
    if g.every then
      g.paid = paid(g, l.cost, passed)
      call('SET', g.rate, fmt('%.0f', g.paid), 'PX', fmt('%.0f', math.max(1, math.ceil((g.paid - us + late) / 1000))))
    end
  end
  known.kept('HSET', prefix .. 'resqued:slots:' .. proc, token, text)
  return text == '' and '+' or '+c'
end

-- judge decides on a job, and returns its result.
local function judge(token, record, from, list)
  local passed = from ~= '' and from ~= 'l'
  for _, l in ipairs(list) do l.gate.met = true end
  for i, l in ipairs(list) do
    local g = l.gate
    local full, at = over(g, l.cost, passed)
    if g.held and record.blame == 0 then full = full or 'c' end -- a suspect is next
    -- A job that has waited in a line passes the others, or jobs of two limits could wait for each other. A suspect
    -- runs before others.
    local waiting = (from ~= '' or record.blame > 0 or record.start ~= '-') and 0 or ahead(g, record.queue)
    if l.action == 'e' then
      if full then
        throttled[g.rule] = (throttled[g.rule] or 0) + 1
        return fmt('e %d %d', i, full == 'r' and math.max(0, at - ms) or -1)
      end
    elseif (full or waiting > 0) and stuck(g, record) then
      return fmt('e %d -1', i)
    elseif full or waiting > 0 then
      if full == 'c' and l.action == 'p' and g.most > 0 and not passed then takeover(g) end
      throttled[g.rule] = (throttled[g.rule] or 0) + (passed and 0 or 1)
      if g.scope ~= '' and full then call('SET', g.mark, '1', 'PX', '900') end
      wait(g, record, token, from == g.name or record.blame > 0, at)
      return fmt('w %d', i)
    elseif l.action == 'p' and passed and g.most and ahead(g, record.queue) > g.most - g.running - 1 then
      return fmt('n %d', i)
    end
  end
  return begin(token, list, passed, record.blame > 0)
end

local at = 4
while at <= #ARGV do
  local token, from, n, list = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), {}
  local own = from == '' or from == 'l'
  for i = 1, n do
    local arg = at + 3 + 8 * (i - 1)
    list[i] = {gate = state(arg), cost = tonumber(ARGV[arg + 6]), action = ARGV[arg + 7]}
    own = own or list[i].gate.name == from
  end
  if not own then slots.wake(prefix, known, from, 64, us) end -- the job no longer has the limit for which it has waited
  at = at + 3 + 8 * n
  local raw = call('HGET', KEYS[1], token)
  local record = raw and unpack_(raw)
  if not record then
    results[#results + 1] = '-'
  else
    local text = pcall_('HGET', prefix .. 'resqued:slots:' .. proc, token)
    if type(text) == 'string' then
      results[#results + 1] = text == '' and '+' or '+c'
    else
      results[#results + 1] = judge(token, record, from, list)
    end
  end
end

-- Those that wait go when a job ends, or when the bucket fills; or now, if there is room.
local next = -1
for _, g in pairs(gates) do
  for queue, payloads in pairs(g.back) do -- the first was taken last
    line(g, queue, 'LPUSH', payloads)
  end
  local waits = g.met and pcall_('HGET', prefix .. 'resqued:awaited', g.name)
  if type(waits) == 'string' then
    local full, time = over(g, 1, true)
    local room = math.min(g.most and g.most - g.running or 1000, g.every and math.floor((us + g.every * g.burst - paid(g, 0, true)) / g.every) or 1000)
    time = math.max(time or 0, g.at or 0)
    if g.scope ~= '' then
      slots.wake(prefix, known, g.name, 1, us) -- another host or process may have room
    elseif not full and not g.at then
      slots.wake(prefix, known, g.name, math.max(1, room), us)
      next = 0
    else
      slots.sleep(prefix, known, g.name, waits)
    end
    if time > 0 and g.scope == '' then
      known.kept('ZADD', prefix .. 'resqued:limit:due', fmt('%.0f', time), g.name)
      next = next < 0 and math.max(0, time - ms) or math.min(next, math.max(0, time - ms))
    end
  end
end

for rule, n in pairs(throttled) do
  if n > 0 then pcall_('HINCRBY', prefix .. 'resqued:throttled', rule, fmt('%d', n)) end
end
freed(prefix, released, ms)
known.freed(released, us)
known.flush()
return {next, unpack(results)}
