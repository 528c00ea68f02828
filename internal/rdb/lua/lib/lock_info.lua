-- lock_info describes locks for people. kind is locket (job lock), timeout (class lock) or loner (loner
-- marker); base and classlock describe their values.
--
-- DEFINES  look(prefix, kind, key, ms, room): a table of fields, or nil for no lock;
--          fields(l): the same as a reply, which parseLock in Go reads; {} for nil
-- NEEDS    base, payload, payload_functions, records, classlock
-- KEYS     reads the lock, resqued:meta, resqued:procs and the in-flight record of the holder;
--          for a marker those of waits in classlock
-- COST     look: 3 to 6 commands, O(1); for a marker those of waits

-- known reports whether daemons keep records in this Redis. Only here a lock of ours without a record is
-- an orphan: class locks may be kept elsewhere.
local function known(prefix) return pcall_('EXISTS', prefix .. 'resqued:meta') ~= 0 end

local function lives(prefix, proc, ms)
  local lease = tonumber(pcall_('ZSCORE', prefix .. 'resqued:procs', proc) or 0) or 0
  local grace = tonumber(pcall_('HGET', prefix .. 'resqued:meta', 'grace') or 0) or 0
  return lease > ms or lease ~= 0 and grace > ms
end

-- described adds a job to a lock's fields, with room bytes of its payload.
local function described(l, queue, payload, room)
  local ok, class, args, _, wrapper = pcall(envelope, payload)
  l.queue, l.size, l.payload = queue, #payload, sub(payload, 1, room)
  l.class, l.args = ok and class or '', ok and class and sub(args, 1, 400) or ''
  l.wrapper = ok and wrapper or ''
end

-- look returns what is known of a lock, nil if there is none. state is held, stale (its holder's process
-- has no lease), expired (its time is past, but its job runs), orphan (its job is gone) or foreign (not
-- a value of ours).
local function look(prefix, kind, key, ms, room)
  local value = pcall_('GET', key)
  if not value then return nil end
  local l = {kind = kind, state = 'foreign', value = '', digest = 'other', epoch = '', proc = '', token = '',
    queue = '', worker = '', class = '', args = '', wrapper = '', fence = '0', at = '0', payload = '', size = 0}
  l.ttl = call('PTTL', key)
  if type(value) ~= 'string' then return l end
  l.value, l.digest = sub(value, 1, 400), redis.sha1hex(value)
  if kind ~= 'locket' then l.epoch = match(value, '^%s*(%d+)') or '' end

  if kind == 'loner' then
    local n, i = match(value, '^%w+:queue:(%d+):()')
    n = tonumber(n)
    if not n then return l end
    local queue, payload = sub(value, i, i + n - 1), sub(value, i + n)
    described(l, queue, payload, room)
    if known(prefix) and not waits(prefix, queue, payload) then
      l.state = 'orphan'
    else
      l.state = expired(value, ms) and 'expired' or 'held'
    end
    return l
  end

  local p, t = match(value, (kind == 'locket' and '^' or '^%w+:') .. 'resqued:(.*)#([^#]*)$')
  if not p then return l end
  l.proc, l.token, l.state = p, t, 'held'
  local raw = pcall_('HGET', prefix .. 'resqued:inflight:' .. p, t)
  if not raw then
    if known(prefix) then l.state = 'orphan' end
    return l
  end
  local record = type(raw) == 'string' and unpack_(raw)
  if record then
    described(l, record.queue, record.payload, room)
    l.worker, l.fence, l.at = record.worker, record.fence, record.at
  end
  if not lives(prefix, p, ms) then
    l.state = 'stale'
  elseif kind == 'timeout' and expired(value, ms) then
    l.state = 'expired'
  end
  return l
end

local function fields(l)
  if not l then return {} end
  return {l.state, l.value, l.digest, l.ttl, l.epoch, l.proc, l.token, l.queue, l.worker, l.class, l.args,
    l.fence, l.at, l.payload, l.size, l.wrapper}
end
