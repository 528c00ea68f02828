-- limit decides on each job of a call by itself, in their order; see limit_together.

local known, released, throttled = linelocks(prefix), {}, {}

-- ahead returns how many jobs of a queue wait for a limit.
local function ahead(g, queue)
  local n = pcall_('LLEN', known.list(queue, g.name))
  return (type(n) == 'number' and n or 0) + #(g.back[queue] or {})
end

-- paid returns when all starts are paid for after one more of that cost.
local function paid(g, cost, passed)
  local from = math.max(g.paid or 0, us - (passed and g.paid and late or 0))
  return from + g.every * cost
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
  known.kept('HSET', prefix .. 'resqued:slots:' .. proc, token, ' ' .. token .. '\n' .. list.text)
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

for at = jobsat, #ARGV, 3 do
  local from, list = ARGV[at], lists[ARGV[at + 1]] or listof(ARGV[at + 1])
  -- The job may no longer have the limit for which it has waited.
  if from ~= '' and from ~= 'l' and not list.gates[from] then slots.wake(prefix, known, from, 64, us) end
  for token in string.gmatch(ARGV[at + 2], '%S+') do
    local raw = call('HGET', KEYS[1], token)
    local record, begun, text, _ = raw and unpack_(raw), nil, nil, nil
    if record and again == '1' then begun, _, text = slots.find(prefix, proc, token) end
    if not record then
      results[#results + 1] = '-'
    elseif begun then
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
return {next, table.concat(results, '\n')}
