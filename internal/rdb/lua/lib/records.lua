-- records reads in-flight records and their job locks, class locks and caps. It is separate because
-- exchange_fast does without, and each definition of a function costs time.
--
-- DEFINES  len(key): length of a list, nil for another type; notlist(key), notset(key): what is wrong with a key, or
--          nil; inway(reason): the error to return for that, or nil; unpack_(s): a record as a table, nil
--          for what is none; held(prefix, lock): whether a job lock is in the way;
--          held_pack(key, value): text; held_each(text, fn): no result;
--          drop_held(prefix, proc, token), answer(prefix, proc, token, text), uncap(prefix, cap,
--          queue): no result; delayed(id, queue, payload, unique): a member of resqued:delayed;
--          removeat(key, index, length): the element that was removed
-- NEEDS    base
-- KEYS     reads locks, resqued:procs and resqued:inflight:<proc>; drop_held removes class locks and the entry in
--          resqued:held:<proc>; answer moves one from resqued:kills:<proc> to
--          resqued:killed:<proc>; uncap writes resqued:caps:<master>
-- COST     len, notlist, notset: 1 command; held: 1 to 4; drop_held: 2, and 2 per class lock; answer, uncap: 1 to
--          3; removeat: 1, or 3 and O(distance from the nearer end)

-- len is LLEN, or nil for a key of another type: that must be found before any pop, because Redis does not
-- roll back.
local function len(key)
  local n = pcall_('LLEN', key)
  if type(n) == 'number' then return n end
  checked(n)
  return nil
end

local function notlist(key) return not len(key) and key .. ' is not a list' or nil end

local function notset(key) return type(query('SCARD', key)) ~= 'number' and key .. ' is not a set' or nil end

local function inway(reason) return reason and redis.error_reply('RESQUEDTYPE ' .. reason .. '; move it away') end

-- unpack_ reads a record; see exchange_fast.
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

-- held reports whether a job lock is in the way. A lock whose record is gone is not: the next job takes it
-- over. Nor is a lock without expiry whose process was fenced or is unknown; with an expiry it would end,
-- though the record stays. A foreign value, such as resque-locket's empty string, counts until it expires.
local held
do
  local leases = {}
  held = function(prefix, lock)
    local value = pcall_('GET', lock)
    if type(value) ~= 'string' then return value and true or false end
    local p, t = match(value, '^resqued:(.*)#([^#]*)$')
    if not p then return true end
    if pcall_('HEXISTS', prefix .. 'resqued:inflight:' .. p, t) == 0 then return false end
    local lease = leases[p] or pcall_('ZSCORE', prefix .. 'resqued:procs', p) or '0'
    leases[p] = lease
    return lease ~= '0' or pcall_('PTTL', lock) ~= -1
  end
end

-- resqued:held:<proc> has a job's class locks under its token, as a list of
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

local function drop_held(prefix, proc, token)
  local key = prefix .. 'resqued:held:' .. proc
  local s = pcall_('HGET', key, token)
  if type(s) ~= 'string' then return end
  call('HDEL', key, token)
  held_each(s, release)
end

-- answer notes how a job ended that was asked to end.
local function answer(prefix, proc, token, text)
  if pcall_('HDEL', prefix .. 'resqued:kills:' .. proc, token) ~= 1 then return end
  local key = prefix .. 'resqued:killed:' .. proc
  pcall_('HSET', key, token, text)
  pcall_('PEXPIRE', key, 60000)
end

-- uncap returns one thread of a queue's cap. The hash vanishes with its last field.
local function uncap(prefix, cap, queue)
  if cap == '' then return end
  local key = prefix .. 'resqued:caps:' .. cap
  local n = pcall_('HINCRBY', key, queue, -1)
  if type(n) == 'number' and n <= 0 then call('HDEL', key, queue) end
end

-- delayed returns the member of resqued:delayed for a job: "<id> <queue length>[u] <queue><payload>", u for
-- a unique queue. The id of a job that has run is "<proc>#<token>"; see delay for others.
local function delayed(id, queue, payload, unique)
  return id .. ' ' .. #queue .. (unique and 'u ' or ' ') .. queue .. payload
end

-- removeat removes the element at index from a list of that length.
local function removeat(key, index, length)
  if index == 0 then return call('LPOP', key) end
  local value = call('LINDEX', key, index)
  if value then
    local hole = '\0' .. redis.sha1hex(index .. value) -- cannot be an element
    call('LSET', key, index, hole)
    call('LREM', key, index < length / 2 and 1 or -1, hole) -- from the nearer end
  end
  return value
end
