-- lib is put in front of every script of this package: the in-flight record,
-- locks, leases, and the parts of a payload that a script has to know. Nothing
-- here decodes JSON: cjson would turn [] into {} and round large integers.

local call, pcall_, find, byte, sub, match, fmt =
  redis.call, redis.pcall, string.find, string.byte, string.sub, string.match, string.format

-- now returns the server's clock in milliseconds and in microseconds.
local function now()
  local t = call('TIME')
  local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  return math.floor(us / 1000), us
end

-- checked ends the script if a command was refused for anything but the type of its
-- key: a missing right, say, must not be taken for an answer.
local function checked(v)
  if type(v) == 'table' and v.err and not find(v.err, 'WRONGTYPE', 1, true) then
    error(redis.acl_check_cmd and v or v.err)
  end
  return v
end

local function refused(v) return type(v) == 'table' and v.err end

local function query(...) return checked(pcall_(...)) end

-- len is LLEN, or nil where the key holds something else: a wrong type must be
-- found before anything is popped, because Redis does not roll back.
local function len(key)
  local n = pcall_('LLEN', key)
  if type(n) == 'number' then return n end
  checked(n)
  return nil
end

-- A record is "3 <lengths and numbers>\n" and then queue, worker, lock key, cap
-- owner and payload, one after the other: no separator can occur in them. start is
-- the job's entry in the start_at list of a unique queue, "-" from any other queue.
local function pack(r)
  return fmt('3 %d %d %d %d %s %d %d %s %s\n', #r.queue, #r.worker, #r.lock, #r.cap, r.fence, r.deaths, r.blame, r.at, r.start)
    .. r.queue .. r.worker .. r.lock .. r.cap .. r.payload
end

local function unpack_(s)
  local q, w, l, c, fence, deaths, blame, at, start, i =
    match(s, '^3 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([%d-]+)\n()')
  if not q then return nil end
  q, w, l, c = tonumber(q), tonumber(w), tonumber(l), tonumber(c)
  local r = {fence = fence, deaths = tonumber(deaths), blame = tonumber(blame), at = at, start = start}
  r.queue = sub(s, i, i + q - 1); i = i + q
  r.worker = sub(s, i, i + w - 1); i = i + w
  r.lock = sub(s, i, i + l - 1); i = i + l
  r.cap = sub(s, i, i + c - 1); i = i + c
  r.payload = sub(s, i)
  return r
end

-- owner is the value of a job lock: it names the process and the record for
-- which the lock is held.
local function owner(proc, token) return 'resqued:' .. proc .. '#' .. token end

-- release removes a lock only if its value is still ours.
local function release(lock, value)
  if lock ~= '' and pcall_('GET', lock) == value then call('DEL', lock) end
end

-- held tells whether a job lock is in anybody's way. One whose record is gone is
-- not: whoever wants it takes it over. A foreign value, such as the empty string of
-- resque-locket, counts until it expires.
local function held(prefix, lock)
  local value = pcall_('GET', lock)
  if type(value) ~= 'string' then return value and true or false end
  local p, t = match(value, '^resqued:(.*)#([^#]*)$')
  return not (p and pcall_('HEXISTS', prefix .. 'resqued:inflight:' .. p, t) == 0)
end

-- A job's class locks stand in resqued:held:<proc> under its token, as a list of
-- "<key length> <value length>\n<key><value>".
local function held_pack(key, value) return fmt('%d %d\n', #key, #value) .. key .. value end

local function held_each(s, fn)
  local i = 1
  while true do
    local k, v, at = match(s, '^(%d+) (%d+)\n()', i)
    if not k then return end
    k, v = tonumber(k), tonumber(v)
    fn(sub(s, at, at + k - 1), sub(s, at + k, at + k + v - 1))
    i = at + k + v
  end
end

-- drop_held releases the class locks of a job whose code has ended.
local function drop_held(prefix, proc, token)
  local key = prefix .. 'resqued:held:' .. proc
  local s = pcall_('HGET', key, token)
  if type(s) ~= 'string' then return end
  call('HDEL', key, token)
  held_each(s, release)
end

-- answer tells who wanted a job to end what became of it.
local function answer(prefix, proc, token, text)
  if pcall_('HDEL', prefix .. 'resqued:kills:' .. proc, token) ~= 1 then return end
  local key = prefix .. 'resqued:killed:' .. proc
  pcall_('HSET', key, token, text)
  pcall_('PEXPIRE', key, 60000)
end

-- uncap gives back one thread of a queue's cap. The hash vanishes with its last
-- field, so nothing has to clean it up.
local function uncap(prefix, cap, queue)
  if cap == '' then return end
  local key = prefix .. 'resqued:caps:' .. cap
  local n = pcall_('HINCRBY', key, queue, -1)
  if type(n) == 'number' and n <= 0 then call('HDEL', key, queue) end
end

-- corpse names a job in resqued:deaths, which outlives the job's records.
local function corpse(queue, payload) return redis.sha1hex(queue .. '\0' .. payload) end

-- deathsof returns how many processes have died that held a job, and for how many of
-- them it may be to blame: then it is a suspect. Its entry is "<deaths> <blame>".
local function deathsof(prefix, name)
  local entry = pcall_('HGET', prefix .. 'resqued:deaths', name)
  local n, blame = match(type(entry) == 'string' and entry or '', '^(%d+) (%d+)$')
  return tonumber(n or 0), tonumber(blame or 0)
end

-- beaten notes that somebody beats. After a gap in which nobody did (an outage,
-- a failover, a jump of the clock) no lease may be judged for one whole lease:
-- the silence was not the fault of those who were silent.
local function beaten(prefix, ms, lease, every)
  local key = prefix .. 'resqued:meta'
  local last = tonumber(call('HGET', key, 'beat') or 0)
  if last and last > 0 and (ms - last > every * 1.5 or ms < last - every) then
    call('HSET', key, 'grace', fmt('%.0f', ms + lease))
  end
  call('HSET', key, 'beat', fmt('%.0f', ms))
end

-- stringend returns the index of the quote that ends the string beginning at i, or nil,
-- and where the next backslash is. slash is where the last one was found that anybody
-- has looked for: payloads have few, or none, and each is looked for once.
local function stringend(s, i, slash)
  i = i + 1
  local a = find(s, '"', i, true)
  while a do
    if slash < i then slash = find(s, '\\', i, true) or math.huge end
    if a < slash then return a, slash end
    i = slash + 2
    if a < i then a = find(s, '"', i, true) end
  end
  return nil, slash
end

-- leap is closing for what is long. Plain searches cost next to nothing for a byte, so
-- it leaps from one mark to the next; each kind is looked for when the last is behind.
local function leap(s, i)
  local find, far = find, math.huge
  local quote, open, close, brace, unbrace, slash, depth, spaced = 0, 0, 0, 0, 0, 0, 0, false
  local space, blank, plain = 0, ' ', true
  for c in string.gmatch('\t\n\v\f\r', '.') do
    if find(s, c, i, true) then blank, plain = '%s', false end
  end
  while true do
    if quote < i then quote = find(s, '"', i, true) or far end
    if open < i then open = find(s, '[', i, true) or far end
    if close < i then close = find(s, ']', i, true) or far end
    if brace < i then brace = find(s, '{', i, true) or far end
    if unbrace < i then unbrace = find(s, '}', i, true) or far end
    local up, down = open < brace and open or brace, close < unbrace and close or unbrace
    local a = up < down and up or down
    if quote < a then a = quote end
    if a == far then return nil end
    if not spaced then
      if space < i then space = find(s, blank, i, plain) or far end
      spaced = space < a
    end
    if a == quote then
      a, slash = stringend(s, a, slash)
      if not a then return nil end
    elseif a == up then
      depth = depth + 1
    else
      depth = depth - 1
      if depth == 0 then return a, spaced end
    end
    i = a + 1
  end
end

-- closing returns the index of the bracket that ends the value beginning at i, and
-- whether there is white space in it outside of strings.
local function closing(s, i)
  if #s > 1000 then return leap(s, i) end
  local depth, slash, spaced, marks = 0, 0, false, '["%[%]{}%s]'
  while true do
    local a = find(s, marks, i)
    if not a then return nil end
    local c = byte(s, a)
    if c == 34 then
      a, slash = stringend(s, a, slash)
      if not a then return nil end
    elseif c == 91 or c == 123 then
      depth = depth + 1
    elseif c == 93 or c == 125 then
      depth = depth - 1
      if depth == 0 then return a, spaced end
    else
      spaced, marks = true, '["%[%]{}]'
    end
    i = a + 1
  end
end

-- squeeze removes white space outside of strings, so that [1, 2] and [1,2] are
-- the same arguments.
local function squeeze(s)
  local out, i, slash, squeezed = {}, 1, 0, {}
  while true do
    local a = find(s, '"', i, true)
    local between = sub(s, i, a and a - 1)
    if not squeezed[between] then squeezed[between] = string.gsub(between, '%s+', '') end
    out[#out + 1] = squeezed[between]
    if not a then return table.concat(out) end
    local b
    b, slash = stringend(s, a, slash)
    out[#out + 1] = sub(s, a, b or #s)
    i = (b or #s) + 1
  end
end

-- envelope returns a payload's class and arguments as they stand in its JSON, and
-- whether squeeze has something to do there; nil for anything that is no plain job.
local function envelope(s)
  local class, i = match(s, '^{"class":"([^"\\]+)","args":()%[')
  if class then
    local e, spaced = closing(s, i)
    if not e then return nil end
    return class, sub(s, i, e), spaced
  end
  local args, spaced
  local pos = match(s, '^%s*{%s*()')
  if not pos then return nil end
  while true do
    local key, at = match(s, '^"([^"\\]*)"%s*:%s*()', pos)
    if not key then return nil end
    local c, e, blank = byte(s, at), nil, nil
    if c == 34 then
      e = stringend(s, at, 0)
    elseif c == 91 or c == 123 then
      e, blank = closing(s, at)
    else
      e = find(s, '[,}%s]', at)
      e = e and e - 1
    end
    if not e then return nil end
    if key == 'class' then
      if c ~= 34 then return nil end
      class = sub(s, at + 1, e - 1)
    elseif key == 'args' then
      args, spaced = sub(s, at, e), blank
    end
    local sep
    sep, pos = match(s, '^%s*([,}])%s*()', e + 1)
    if sep == '}' then break end
    if not sep then return nil end
  end
  if not class then return nil end
  if not args or args == 'null' then args = '[]' end
  return class, args, spaced
end

-- lockname returns what jobs that exclude each other have in common.
local function lockname(payload, style)
  local class, rest, spaced
  if style ~= 'payload' then class, rest, spaced = envelope(payload) end
  if not class then class, rest = '', payload elseif spaced then rest = squeeze(rest) end
  if #rest > 200 then rest = ':' .. redis.sha1hex(rest) end
  return class .. rest
end

-- delayed returns the member of resqued:delayed for a job that has to wait:
-- "<proc>#<token> <queue length>[u] <queue><payload>", u for a unique queue.
local function delayed(proc, token, queue, record)
  return proc .. '#' .. token .. ' ' .. #queue .. (record.start ~= '-' and 'u ' or ' ') .. queue .. record.payload
end

-- removeat takes the element with an index out of a list.
local function removeat(key, index)
  if index == 0 then return call('LPOP', key) end
  local value = call('LINDEX', key, index)
  if value then
    local hole = '\0' .. redis.sha1hex(index .. value) -- nothing that could stand there
    call('LSET', key, index, hole)
    call('LREM', key, -1, hole) -- from the tail, where it is most often
  end
  return value
end
