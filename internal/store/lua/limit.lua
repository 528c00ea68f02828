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
-- ARGV[4]   "<whether the call repeats another (0 or 1)> <number of limits>"
-- ARGV[5…]  per limit: rule, gate, scope or '', concurrency or '-', µs per unit or '-', burst, what to do (w wait,
--           p wait and kill the oldest job in the way, e the process ends it);
--           per job: token, the name of the limit's line whose next it was, l if it was the next of a lock's line,
--           else ''; its limits: " <number of the limit, from 1>=<cost>" of each
-- RETURNS   {ms until a job that waits may go or -1, one text per job, …}: '+' it may begin, '+c' it may and counts
--           under a concurrency; '-' it has no record any more: an earlier try has put it into a line; 'w <limit>' it
--           waits for that limit, counted from 1; 'e <limit> <ms until it may go or -1>' it is over that limit;
--           'n <limit>' a newer job waits that replaces it
-- COST      12 commands, and 3 or 4 per limit, if all jobs may begin and none has waited in a line. Else also 2 per job, 3 or
--           4 per limit of a job; per limit that is full 10, or if none waits for it 1 per job that counts; 5 to 10
--           per job that waits, and those of freed

local prefix, proc, grace = ARGV[1], ARGV[2], ARGV[3]
local ms, us = now()
local known, released, gates, results, throttled = linelocks(prefix), {}, {}, {}, {}
local apart = pcall_('EXISTS', prefix .. 'resqued:suspects') == 1
local late = 500000 -- µs; jobs that have waited may go this much later than their time without loss of rate
call('PERSIST', KEYS[1]) -- see register: a full server must not reject the rest

local again, ngates = match(ARGV[4], '^(%d) (%d+)$')
ngates = tonumber(ngates)
local jobsat, hashes = 5 + 7 * ngates, {}
slots.collect(prefix, proc)

-- The fields of hashes for all limits.
do
  local rules, ids, names = {}, {}, {}
  for i = 1, ngates do
    local at = 5 + 7 * (i - 1)
    rules[i], ids[i], names[i] = ARGV[at], ARGV[at + 1], (ARGV[at + 2] == '' and '\1' or '\2') .. ARGV[at + 1]
  end
  for name, of in pairs({rules = {'limits', rules}, ids = {'limits', ids}, closed = {'closed', ids}, awaited = {'awaited', names}}) do
    local values = ngates > 0 and pcall_('HMGET', prefix .. 'resqued:' .. of[1], unpack(of[2])) or {}
    hashes[name] = values.err and {} or values
  end
end

-- override returns what people have set for a limit or its rule, until when (ms), or nil.
local function override(i, rule, gate)
  for j, text in ipairs({hashes.ids[i] or '', hashes.rules[i] or ''}) do
    local till, concurrency, every, burst = match(text, '^(%d+) (%S+) (%S+) (%S+)$')
    if till and tonumber(till) > ms then return tonumber(till), concurrency, every, burst end
    if till then pcall_('HDEL', prefix .. 'resqued:limits', j == 1 and gate or rule) end
  end
end

for i = 1, ngates do
  local at = 5 + 7 * (i - 1)
  local rule, gate, scope = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local till, concurrency, every, burst = override(i, rule, gate)
  local closed = tonumber(hashes.closed[i] or 0) or 0
  if closed > ms then
    till, concurrency = closed, '0'
  elseif closed > 0 then
    pcall_('HDEL', prefix .. 'resqued:closed', gate)
  end
  local g = {
    rule = rule, name = (scope == '' and '\1' or '\2') .. gate, scope = scope, key = prefix .. 'resqued:limit:' .. gate .. scope,
    rate = prefix .. 'resqued:rate:' .. gate .. scope, till = till, back = {}, waits = hashes.awaited[i], action = ARGV[at + 6],
    most = tonumber(concurrency and concurrency ~= '-' and concurrency or ARGV[at + 3]),
    every = tonumber(every and every ~= '-' and every or ARGV[at + 4]),
    burst = tonumber(burst and burst ~= '-' and burst or ARGV[at + 5]), mark = prefix .. 'resqued:limit:full:' .. proc .. ':' .. gate,
    jobs = {}, units = 0,
  }
  gates[i] = g
  if g.most then
    g.running = known.kept('ZCARD', g.key)
    g.held = apart and pcall_('EXISTS', prefix .. 'resqued:limit:hold:' .. g.name) == 1
  end
  if g.every then
    local value = known.kept('GET', g.rate)
    g.paid = tonumber(type(value) == 'string' and value or nil)
  end
end

-- full reports whether n more jobs would be too many. It counts exactly: jobs that ended while none waited still have
-- entries.
local function full(g, n)
  if not g.most or g.running + n <= g.most then return false end
  if not g.counted then g.running, g.counted = g.running - slots.dead(prefix, g.key, not g.waits), true end
  return g.running + n > g.most
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
  if full(g, 1) then return 'c', g.till end
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

-- pay notes when all starts are paid for.
local function pay(g, till)
  g.paid = till
  call('SET', g.rate, fmt('%.0f', till), 'PX', fmt('%.0f', math.max(1, math.ceil((till - us + late) / 1000))))
end

-- begin counts a job under its limits, and returns its result.
local function begin(token, list, passed, suspect)
  for _, l in ipairs(list) do
    local g = l.gate
    if g.most then
      known.kept('ZADD', g.key, fmt('%.0f', ms), proc .. '#' .. token)
      g.running = g.running + 1
      if suspect then call('DEL', prefix .. 'resqued:limit:hold:' .. g.name) end
    end
    if g.every then pay(g, paid(g, l.cost, passed)) end
  end
  known.kept('HSET', prefix .. 'resqued:slots:' .. proc, token, list.text)
  return list.text == '' and '+' or '+c'
end

-- judge decides on a job, and returns its result.
local function judge(token, record, from, list)
  local passed = from ~= '' and from ~= 'l'
  for _, l in ipairs(list) do l.gate.met = true end
  for i, l in ipairs(list) do
    local g = l.gate
    local in_way, at = over(g, l.cost, passed)
    if g.held and record.blame == 0 then in_way = in_way or 'c' end -- a suspect is next
    -- A job that has waited in a line passes the others, or jobs of two limits could wait for each other. A suspect
    -- runs before others.
    local waiting = (from ~= '' or record.blame > 0 or record.start ~= '-') and 0 or ahead(g, record.queue)
    if g.action == 'e' then
      if in_way then
        throttled[g.rule] = (throttled[g.rule] or 0) + 1
        return fmt('e %d %d', i, in_way == 'r' and math.max(0, at - ms) or -1)
      end
    elseif (in_way or waiting > 0) and stuck(g, record) then
      return fmt('e %d -1', i)
    elseif in_way or waiting > 0 then
      if in_way == 'c' and g.action == 'p' and g.most > 0 and not passed then takeover(g) end
      throttled[g.rule] = (throttled[g.rule] or 0) + (passed and 0 or 1)
      if g.scope ~= '' and in_way then call('SET', g.mark, '1', 'PX', '900') end
      wait(g, record, token, from == g.name or record.blame > 0, at)
      return fmt('w %d', i)
    elseif g.action == 'p' and passed and g.most and ahead(g, record.queue) > g.most - g.running - 1 then
      return fmt('n %d', i)
    end
  end
  return begin(token, list, passed, record.blame > 0)
end

-- The limits of jobs are mostly the same.
local lists = {}
local function listof(text)
  local list = {text = '', gates = {}}
  for i, cost in string.gmatch(text, ' (%d+)=(%d+)') do
    local g = gates[tonumber(i)]
    list[#list + 1] = {gate = g, cost = tonumber(cost)}
    list.gates[g.name] = true
    if g.most then list.text = list.text .. held_pack(g.name, g.scope) end
  end
  lists[text] = list
  return list
end

-- If all may begin, they begin together. A process that others may have taken for dead looks for its records first.
local easy = again == '0' and not apart and (tonumber(pcall_('ZSCORE', prefix .. 'resqued:procs', proc) or 0) or 0) > ms
for at = jobsat, easy and #ARGV or 0, 3 do
  easy = easy and ARGV[at + 1] == ''
  for _, l in ipairs(lists[ARGV[at + 2]] or listof(ARGV[at + 2])) do
    local g = l.gate
    table.insert(g.jobs, fmt('%d', ms))
    table.insert(g.jobs, proc .. '#' .. ARGV[at])
    g.units = g.units + l.cost
  end
end
for i = 1, easy and ngates or 0 do
  local g = gates[i]
  if g.waits or full(g, #g.jobs / 2) then easy = false end
  if g.every and math.max(g.paid or 0, us) + g.every * g.units > us + g.every * g.burst then easy = false end
end
if easy then
  local fields = {}
  for at = jobsat, #ARGV, 3 do
    local list = lists[ARGV[at + 2]]
    results[#results + 1] = list.text == '' and '+' or '+c'
    fields[#fields + 1], fields[#fields + 2] = ARGV[at], list.text
  end
  for _, g in ipairs(gates) do
    if g.most then known.kept('ZADD', g.key, unpack(g.jobs)) end
    if g.every then pay(g, math.max(g.paid or 0, us) + g.every * g.units) end
  end
  known.kept('HSET', prefix .. 'resqued:slots:' .. proc, unpack(fields))
  return {-1, unpack(results)}
end

for at = jobsat, #ARGV, 3 do
  local token, from = ARGV[at], ARGV[at + 1]
  local list = lists[ARGV[at + 2]] or listof(ARGV[at + 2])
  -- The job may no longer have the limit for which it has waited.
  if from ~= '' and from ~= 'l' and not list.gates[from] then slots.wake(prefix, known, from, 64, us) end
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
for _, g in ipairs(gates) do
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
