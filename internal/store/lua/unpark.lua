-- unpark writes parked data to its target: due entries that wait for their target, or the named ones. See parked.
--
-- KEYS[1]   resqued:parking
-- ARGV[1]   prefix
-- ARGV[2]   n, the most to move
-- ARGV[3…]  ids; a named job to whose payload a failure record refers goes to the tail of its queue
-- RETURNS   {how many were moved, 1 if there may be more or 0, reason for one that was not or ''};
--           error NOPERM: nothing was done
-- COST      2 commands if nothing waits. Else 4, and about 8 for each; O(n), and at most about 4 MB
--           of payloads. With a unique queue those of putback.

local prefix, most, moved, bytes, reason = ARGV[1], tonumber(ARGV[2]), 0, 0, ''
local all = prefix .. 'resqued:parked'
local ms = now()

local ids = {unpack(ARGV, 3)}
local named = #ids > 0
if not named then
  ids = query('ZRANGEBYSCORE', KEYS[1], '-inf', fmt('%.0f', ms), 'LIMIT', 0, most)
  if ids.err or #ids == 0 then return {0, 0, ''} end
end

call('PERSIST', KEYS[1]) -- the first write, after which a full server accepts the rest
local inline = pcall_('EXISTS', prefix .. 'resqued:lined') ~= 0 and lines(prefix)

-- read returns the entry under an id, or nil; the second result: this version does not read it, but another may.
local function read(id)
  local meta, payload = pcall_('HGET', all, id), pcall_('GET', all .. ':' .. id)
  if type(meta) ~= 'string' or type(payload) ~= 'string' then return nil end
  local kind, at, start, gap, q, r, n, i = match(meta, '^1 ([fFrbtl]) (%d+) ([%d-]+) (%d+) (%d+) (%d+) (%d+)\n()')
  if not kind then return nil, true end
  q, r = tonumber(q), tonumber(r)
  return {
    kind = kind, at = at, start = start, gap = tonumber(gap), payload = payload,
    queue = sub(meta, i, i + q - 1), reason = sub(meta, i + q, i + q + r - 1), text = sub(meta, i + q + r),
  }
end

-- place writes an entry to its target, or returns what prevents that.
local function place(id, p)
  if p.kind == 'f' or p.kind == 'F' then
    local wrong = notlist(prefix .. 'failed')
    if wrong then return wrong end
    parked.file(prefix, 'failed', id, tonumber(p.at), p, p.text, p.gap, p.kind == 'F')
    if p.kind == 'F' then
      call('ZREM', KEYS[1], id)
      return
    end
  else
    if p.queue == '' then return 'it says no queue: see its payload, and enqueue that yourself' end
    local key, start = prefix .. 'queue:' .. p.queue, p.start
    local wrong = queueobstacle(key, start ~= '-')
    if wrong then return wrong end
    if p.kind == 't' then
      local n, value, ttl, at = match(p.text, '^(%d+) (%d+) (%d+)\n()')
      local count = prefix .. sub(p.text, at, at + tonumber(n) - 1)
      if refused(query('GET', count)) then return count .. ' is not a string' end
      if ttl == '0' then call('SET', count, value) else call('SET', count, value, 'EX', ttl) end
    end
    if p.kind == 'b' then
      forget_seen(prefix, p.queue) -- as in recover
    elseif start ~= '-' then
      start = fmt('%.0f', math.floor(ms / 1000))
    end
    if not (p.kind == 'b' and inline and inline.lead(p.queue, p.payload, {p.text})) then
      putback(prefix, p.queue, p.payload, start, p.kind == 'b')
    end
  end
  parked.drop(prefix, id)
end

local more = #ids == most and 1 or 0
for _, id in ipairs(ids) do
  if bytes > 4194304 then
    more = 1
    break
  end
  local p, foreign = read(id)
  if foreign then
    reason = 'what is parked under ' .. id .. ' is nothing that this version of resqued has written'
    if call('ZSCORE', KEYS[1], id) then call('ZADD', KEYS[1], fmt('%.0f', ms + 10000), id) end
  elseif not p then
    call('ZREM', KEYS[1], id) -- it was removed
    if named then reason = 'nothing is parked under ' .. id end
  else
    bytes = bytes + #p.payload
    local stuck = place(id, p)
    if stuck then
      reason = stuck
      if p.kind ~= 'l' then call('ZADD', KEYS[1], fmt('%.0f', ms + 10000), id) end
    else
      moved = moved + 1
    end
  end
end
if inline then inline.flush() end
return {moved, more, reason}
