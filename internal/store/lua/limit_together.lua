-- limit_together begins the script limit, which decides which of the jobs that a process has just taken may begin under
-- their limits: all limits of a job count it, or none. Others go to the line of the first limit in the way, or the process ends them. It may be repeated.
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
--           per group of jobs that follow each other: the name of the limit's line whose next each was, l if it was the
--           next of a lock's line, else ''; their limits: " <number of the limit, from 1>=<cost>" of each; their
--           tokens: " <token>" of each
-- RETURNS   {ms until a job that waits may go or -1, one line per job}: '+' it may begin, '+c' it may and counts
--           under a concurrency; '-' it has no record any more: an earlier try has put it into a line; 'w <limit>' it
--           waits for that limit, counted from 1; 'e <limit> <ms until it may go or -1>' it is over that limit;
--           'n <limit>' a newer job waits that replaces it
-- COST      12 commands, and 2 or 4 per limit, if all jobs may begin and none has waited in a line. Else also 1 per job, 2 or
--           4 per limit of a job; per limit that is full 10, or if none waits for it 1 per job that counts; 5 to 10
--           per job that waits, and those of freed
--
-- This part lets jobs begin if all of the call may; limit handles the rest.

local prefix, proc, grace = ARGV[1], ARGV[2], ARGV[3]
local ms, us = now()
local gates, results = {}, {}
local apart = pcall_('EXISTS', prefix .. 'resqued:suspects') == 1
local late = 500000 -- µs; jobs that have waited may go this much later than their time without loss of rate
call('PERSIST', KEYS[1]) -- see register: a full server must not reject the rest

local again, ngates = match(ARGV[4], '^(%d) (%d+)$')
ngates = tonumber(ngates)
local jobsat, hashes = 5 + 7 * ngates, {}
local entries = pcall_('HLEN', prefix .. 'resqued:slots:' .. proc)
if type(entries) == 'number' and entries >= 16 then slots.collect(prefix, proc) end

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

-- pay notes when all starts are paid for.
local function pay(g, till)
  g.paid = till
  call('SET', g.rate, fmt('%.0f', till), 'PX', fmt('%.0f', math.max(1, math.ceil((till - us + late) / 1000))))
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
    g.running = tonumber(pcall_('ZCARD', g.key)) or 0
    g.held = apart and pcall_('EXISTS', prefix .. 'resqued:limit:hold:' .. g.name) == 1
  end
  if g.every then
    local value = pcall_('GET', g.rate)
    g.paid = tonumber(type(value) == 'string' and value or nil)
    -- No job pays for a later time, unless the server's clock was set back since: then the bucket is empty.
    local last = us + g.every * math.max(g.burst, tonumber(ARGV[at + 5]))
    if g.paid and g.paid > last then pay(g, last) end
  end
end

-- full reports whether n more jobs would be too many. It counts exactly: jobs that ended while none waited still have
-- entries.
local collected = false
local function full(g, n)
  if not g.most or g.running + n <= g.most then return false end
  if not g.counted then
    if not collected then slots.collect(prefix, proc) end
    collected, g.counted = true, true
    g.running = tonumber(pcall_('ZCARD', g.key)) or 0
    if g.running + n > g.most then
      -- Since a line began, ends take their entries with them; those from before are looked for once.
      local room, field = prefix .. 'resqued:room', '#' .. g.name
      local seen = g.waits and pcall_('HGET', room, field) == '1'
      g.running = g.running - slots.dead(prefix, g.key, not seen)
      if g.waits and not seen then pcall_('HSET', room, field, '1') end
    end
  end
  return g.running + n > g.most
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
local at_ms = fmt('%d', ms)
for at = jobsat, easy and #ARGV or 0, 3 do
  if ARGV[at] ~= '' then easy = false end
  local list = lists[ARGV[at + 1]] or listof(ARGV[at + 1])
  for token in string.gmatch(ARGV[at + 2], '%S+') do
    local member = proc .. '#' .. token
    for _, l in ipairs(list) do
      local jobs = l.gate.jobs
      jobs[#jobs + 1] = at_ms
      jobs[#jobs + 1] = member
      l.gate.units = l.gate.units + l.cost
    end
    results[#results + 1] = list.text == '' and '+' or '+c'
  end
end
for i = 1, easy and ngates or 0 do
  local g = gates[i]
  if g.waits or full(g, #g.jobs / 2) then easy = false end
  if g.every and math.max(g.paid or 0, us) + g.every * g.units > us + g.every * g.burst then easy = false end
end
for i = 1, easy and ngates or 0 do
  local g = gates[i]
  if g.most and refused(pcall_('ZADD', g.key, unpack(g.jobs))) then easy = false end -- a key of another type
end
if easy then
  local fields = {}
  for at = jobsat, #ARGV, 3 do
    fields[#fields + 1] = match(ARGV[at + 2], '^ (%S+)')
    fields[#fields + 1] = ARGV[at + 2] .. '\n' .. lists[ARGV[at + 1]].text
  end
  easy = not refused(pcall_('HSET', prefix .. 'resqued:slots:' .. proc, unpack(fields)))
end
if easy then
  for _, g in ipairs(gates) do
    if g.every then pay(g, math.max(g.paid or 0, us) + g.every * g.units) end
  end
  return {-1, table.concat(results, '\n')}
end
results = {}
