-- exchange_wants reads what a call asks for. In a repeated call, some wants may already hold a job. A part of
-- exchange; see exchange_fast.
--
-- DEFINES  asked: the wants without a job, w the next of them; nameof(queue, payload, byGo): the name of a payload's
--          lock, or nil; ask(queue, byGo, payloads, known): no result
-- NEEDS    all parts before it
-- COST     for a repeated call 2 commands, and 3 per want

if again then
  call('PERSIST', info) -- see register: a full server must not reject the rest
  pcall_('HSET', info, repeated, sending)
end

-- whole reports whether a record that is requested again still has its lock. If the lock has expired, another process
-- may have had it: the job, which has not begun, then returns to where it came from.
function line.whole(token, raw)
  local record = unpack_(raw)
  if not record or record.lock == '' then return true end
  if pcall_('GET', record.lock) == me .. token then
    pcall_('EXPIRE', record.lock, ttl)
    return true
  end
  local alone = onsuspects == 'o'
  local key = alone and apartkey(prefix, record.queue) or prefix .. 'queue:' .. record.queue
  if not len(key) or not alone and record.start ~= '-' and not utyped(key) then
    return true -- the next beat stops it
  end
  call('HDEL', inflight, token)
  uncap(prefix, record.cap, record.queue)
  if alone then
    set_apart(prefix, record.queue, record.payload, record.start)
  else
    forget_seen(prefix, record.queue)
    if not (line.known and line.known.lead(record.queue, record.payload, {record.lock})) then
      putback(prefix, record.queue, record.payload, record.start, true)
    end
  end
  return false
end

-- asked are the wants without a job, w the next of them.
local asked = {}
for _ = w, nwant do
  local t, a, b = byte(wants, wantat, wantat + 2)
  local at, ends = wantat + 3 + t, wantat + 2 + t + a * 256 + b
  local token = sub(wants, wantat + 3, at - 1)
  local mine = again and call('HGET', inflight, token)
  if mine and line.whole(token, mine) then
    table.insert(reply[10], token) -- perhaps
    reply[#reply + 1] = token
    reply[#reply + 1] = mine
  else
    asked[#asked + 1] = {token, lead .. sub(wants, at, ends) .. tail}
  end
  wantat = ends + 1
end
w = 1

local locknames, inGo = {}, {}
do
  local at = queuesat + 1 -- a call without wants has none of this
  for _ = 1, nwant > 0 and nnames or 0 do
    locknames[ARGV[at] .. '\0' .. ARGV[at + 1]], line.named[ARGV[at] .. '\0' .. ARGV[at + 1]] = ARGV[at + 2], ARGV[at + 3]
    at = at + 4
  end
  for i = at, at + nclasses - 1 do inGo[ARGV[i]] = true end
  for i = at + nclasses, nwant > 0 and #ARGV or 0, 2 do line.fair[ARGV[i]] = ARGV[i + 1] end
end

-- nameof returns the name of a payload's lock, or nil if Go must name it.
local function nameof(queue, payload, byGo)
  local known, class, _, wrapper = false, nil, nil, nil
  if nclasses > 0 then known, class, _, _, wrapper = pcall(envelope, payload) end
  -- Go also reads payloads with escapes.
  if byGo or known and (not class or inGo[class] or inGo[wrapper or ''] or find(class, '\\', 1, true)) then
    return locknames[queue .. '\0' .. redis.sha1hex(payload)]
  end
  local ok, name = pcall(lockname, payload, style)
  return ok and name or redis.sha1hex(payload)
end

-- ask requests the names of the next payloads' locks, and what known does not know.
local function ask(queue, byGo, payloads, known)
  local size = 0
  for _, payload in ipairs(payloads) do
    if size > 65536 then break end
    if known and not known(payload) or not nameof(queue, payload, byGo) then
      table.insert(reply[8], queue)
      table.insert(reply[8], payload)
      size = size + #payload
    end
  end
end
