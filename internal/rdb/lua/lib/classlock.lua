-- classlock knows the values of class locks and loner markers. They are resque-lock-timeout's, which
-- reads only leading digits, with a name appended:
--
--   lock    <expiry, epoch seconds, or true>:resqued:<proc>#<token>
--   marker  <expiry, epoch seconds, or true>:queue:<length>:<queue><payload>
--
-- A value without a name is the gem's own and ends with its expiry time.
--
-- DEFINES  classvalue(ms, timeout, name): the value of a lock or marker;
--          nameof(value): the name in it or nil; expired(value, ms): whether its time is past;
--          standing(prefix, lock, ms, elsewhere): the value in the way or nil;
--          markname(queue, payload): the name in a marker;
--          among(key, payload, behind), inline(prefix, queue, payload, look), inhand(prefix, queue,
--          payload), waits(prefix, queue, payload): whether a payload waits in a list, in a line,
--          is in hand, or any of these;
--          marked(prefix, marker, ms, elsewhere): whether the marker is in the way;
--          unmark(marker, name): whether it was removed;
--          remark(marker, from, to, payload): no result;
--          notext(key, …): an error to return for a key that is not a string, or nil
-- NEEDS    base, records
-- KEYS     reads the lock and the marker, queue:<q>, resqued:suspects:<q>, resqued:lined and the lines, resqued:procs,
--          resqued:inflight:*; removes or writes the marker
-- COST     standing, unmark: 2 commands; remark: 3; notext: 1 per key; waits: among reads a queue of up to
--          1,000 jobs, 4 MB at most; inhand 2 commands per process, up to 10,000 records

local function classvalue(ms, timeout, name)
  if timeout == 0 then return 'true:' .. name end
  return fmt('%.0f:', math.ceil((ms + timeout) / 1000)) .. name
end

local function nameof(value) return match(value, '^%w+:(.*)$') end

local function expired(value, ms)
  local epoch = match(value, '^%s*(%d+)')
  return epoch ~= nil and tonumber(epoch) < math.floor(ms / 1000)
end

-- standing returns the value of a class lock that is in the way, or nil. A lock of ours lasts as long
-- as its record, whatever its time; in another Redis (elsewhere), which has no records, until it
-- expires.
local function standing(prefix, lock, ms, elsewhere)
  local value = call('GET', lock)
  if not value then return nil end
  local p, t = match(value, '^%w+:resqued:(.*)#([^#]*)$')
  if p then
    if not elsewhere and pcall_('HEXISTS', prefix .. 'resqued:inflight:' .. p, t) == 0 then return nil end
    return value
  end
  return not expired(value, ms) and value or nil
end

local function markname(queue, payload) return 'queue:' .. #queue .. ':' .. queue .. payload end

-- among reports whether a list contains a payload, plain or behind a start time (see suspects). It
-- answers yes if the search would take too long.
local function among(key, payload, behind)
  local n = len(key)
  if not n or n > 1000 then return true end
  local bytes = 0
  for from = 0, n - 1, 100 do
    for _, p in ipairs(call('LRANGE', key, from, from + 99)) do
      if p == payload or behind and match(p, '^[%d-]+ (.*)$') == payload then return true end
      bytes = bytes + #p
    end
    if bytes > 4194304 then return true end
  end
  return false
end

-- inhand reports whether a process holds a payload of a queue. It answers yes if the search would take
-- too long.
local function inhand(prefix, queue, payload)
  local procs = pcall_('ZRANGE', prefix .. 'resqued:procs', 0, 1000)
  if procs.err or #procs > 1000 then return true end
  local left = 10000 -- records to look at
  for _, proc in ipairs(procs) do
    local inflight = prefix .. 'resqued:inflight:' .. proc
    local n = pcall_('HLEN', inflight)
    left = left - (tonumber(n) or 0)
    if left < 0 then return true end
    local records = pcall_('HVALS', inflight)
    for _, raw in ipairs(records.err and {} or records) do
      local r = sub(raw, -#payload) == payload and unpack_(raw)
      if r and r.queue == queue and r.payload == payload then return true end
    end
  end
  return false
end

-- inline reports whether a payload waits in one of a queue's lines (see lines). It answers yes if the
-- search would take too long. A caller with more time passes look, which searches a list; then up to
-- 10,000 lines are searched.
local function inline(prefix, queue, payload, look)
  local n = pcall_('HGET', prefix .. 'resqued:lined', queue)
  if type(n) ~= 'string' then return false end
  for _, kind in ipairs({'line', 'turn'}) do
    local names = (look or (tonumber(n) or 1001) <= 1000) and pcall_('ZRANGE', prefix .. 'resqued:' .. kind .. 's:' .. queue, 0, 10000)
    if not names or names.err or #names > 10000 then return true end
    for _, name in ipairs(names) do
      if (look or among)(prefix .. 'resqued:' .. kind .. ':' .. #queue .. ':' .. queue .. ':' .. name, payload) then return true end
    end
  end
  return false
end

local function waits(prefix, queue, payload)
  return among(prefix .. 'queue:' .. queue, payload) or among(prefix .. 'resqued:suspects:' .. queue, payload, true)
    or inline(prefix, queue, payload) or inhand(prefix, queue, payload)
end

-- marked reports whether a loner marker is in the way. A marker whose job no longer exists is not.
local function marked(prefix, marker, ms, elsewhere)
  local value = call('GET', marker)
  if not value or expired(value, ms) then return false end
  local n, i = match(value, '^%w+:queue:(%d+):()')
  n = tonumber(n)
  if not n or elsewhere then return true end
  return waits(prefix, sub(value, i, i + n - 1), sub(value, i + n))
end

-- unmark removes a loner marker when its job starts or is removed. Another job's marker stays.
local function unmark(marker, name)
  local value = pcall_('GET', marker)
  if type(value) ~= 'string' then return false end
  if match(value, '^%w+:queue:') and nameof(value) ~= name then return false end
  call('DEL', marker)
  return true
end

-- remark moves a loner marker along with its job to another queue. Another job's marker stays.
local function remark(marker, from, to, payload)
  local value = pcall_('GET', marker)
  if type(value) ~= 'string' or nameof(value) ~= markname(from, payload) then return end
  local ttl = call('PTTL', marker)
  value = match(value, '^%w+:') .. markname(to, payload)
  if ttl > 0 then call('SET', marker, value, 'PX', ttl) else call('SET', marker, value) end
end

-- notext returns an error for the first key that is not a string.
local function notext(...)
  for _, key in ipairs({...}) do
    if key ~= '' and type(query('STRLEN', key)) ~= 'number' then
      return inway(key .. ' is not a string')
    end
  end
end
