-- relock restores locks that expired while their jobs are in flight: Redis's clock jumped forward, or no
-- beat came through for their whole lifetime. A lock lasts as long as its record, so no other job may get
-- it first. See beaten in grace.
--
-- DEFINES  relock(prefix, proc, ttl): no result
-- NEEDS    base, records
-- KEYS     reads and writes resqued:relock; reads resqued:inflight:* and resqued:held:*; writes
--          locks
-- COST     1 command, nearly always; after a silence 4 per process and 3 per record, of 500
--          records or so at most

-- relocked restores the locks of one process and returns how many records it has.
local function relocked(prefix, proc, ttl)
  local inflight = prefix .. 'resqued:inflight:' .. proc
  local size = pcall_('HLEN', inflight)
  if type(size) ~= 'number' or size > 5000 then -- nothing of ours
    call('ZREM', prefix .. 'resqued:relock', proc)
    return 100
  end
  local tokens = call('HKEYS', inflight)
  -- A timed lock ends with its job, whose process knows when, so it is not extended. A lock that cannot be
  -- set must not stop the beat.
  local function take(key, value) pcall_('SET', key, value, 'NX', 'EX', match(value, '^%d') and 86400 or ttl) end
  for _, token in ipairs(tokens) do
    local raw = pcall_('HGET', inflight, token)
    local record = type(raw) == 'string' and unpack_(raw)
    if record and record.lock ~= '' then take(record.lock, owner(proc, token)) end
    local held = pcall_('HGET', prefix .. 'resqued:held:' .. proc, token)
    if record and type(held) == 'string' then held_each(held, take) end
  end
  call('ZREM', prefix .. 'resqued:relock', proc)
  return #tokens
end

-- relock restores the locks of the calling process, and of others while that is little work. Those may beat
-- less often than the caller, but no lease is longer than 35 s.
local function relock(prefix, proc, ttl)
  local key = prefix .. 'resqued:relock'
  local left = pcall_('ZCARD', key)
  if left == 0 then return end
  if type(left) ~= 'number' then call('DEL', key) return end -- only resqued uses the key
  local records = relocked(prefix, proc, ttl)
  while records < 500 do
    local other = call('ZRANGE', key, 0, 0)[1]
    if not other then return end
    records = records + 10 + relocked(prefix, other, math.max(tonumber(ttl), 35))
  end
end
