-- exchange_take takes jobs on the fast path: from the heads of queues in which nothing is locked, capped or
-- unique. All jobs of a look at a queue share its commands. Where it meets anything else it leaves the rest
-- of the call to exchange_slow, from the point that was reached. A part of exchange; see exchange_fast.
--
-- DEFINES  nothing
-- NEEDS    all parts before it
-- COST     per queue with jobs 2 or 3 commands, and 1 more per 64 jobs; 1 for the locks of up to 64 jobs, and 1 per job
--          where one of these is held; 1 for the fences of all

-- payloads returns the next jobs of a queue, at most room. A job that has died, and all behind it, are for
-- exchange_slow. What is no list has no payloads; the only one of a queue has left it.
function plain.payloads(q, room)
  local payloads
  if q.n > 0 or room > 1 then
    payloads = query('LRANGE', q.key, q.n == 0 and '0' or fmt('%d', q.n), fmt('%d', q.n + room - 1))
  else
    local popped = query('LPOP', q.key)
    q.popped = popped
    payloads = type(popped) == 'table' and popped or {popped or nil}
  end
  if payloads.err then q.popped, payloads, going = nil, {}, false end
  if q.deaths and #payloads > 0 then
    local died = {}
    for i = 1, #payloads do died[i] = redis.sha1hex(payloads[i]) end
    died = pcall_('HMGET', q.deaths, unpack(died))
    for i = 1, #payloads do
      going = going and not died[i]
      if not going then payloads[i] = nil end
    end
  end
  return payloads
end

-- locks returns the locks of jobs and what is to be in each, and whether that was written by one command: if they
-- were free and no two are the same. It gives them no time to live: that they get with the first beat after it, and
-- what has none is in no job's way once its process is gone (see held in records).
function plain.locks(q, payloads)
  local size, tight, together, at = 0, false, #payloads > 1, wantat
  for i = 1, #payloads do size = size + #payloads[i] end
  if size > 0 and size < 400 * #payloads then tight = not spaced(table.concat(payloads)) end
  local met, set = together and {}, together and {unpack(fields, 1, 2 * #payloads)} or {'', ''}
  for i = 1, #payloads do
    local payload = payloads[i]
    local t, m, rest = byte(wants, at, at + 2)
    local lock = style ~= 'payload' and quickname(jobs, payload, tight)
    if not lock then
      if not lockname then stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname) end
      local ok, name = pcall(lockname, payload, style)
      lock = jobs .. (ok and name or redis.sha1hex(payload))
    end
    set[2 * i - 1], set[2 * i] = lock, me .. sub(wants, at + 3, at + 2 + t)
    if met then
      if met[lock] then together = false end
      met[lock], at = true, at + 3 + t + m * 256 + rest
    end
  end
  -- Where a suspect wants one of them, see requests in exchange_locks.
  local asked = obstacles.apart and q.lined and {}
  for i = 1, asked and #payloads or 0 do asked[i] = prefix .. 'resqued:request:' .. sub(set[2 * i - 1], #jobs + 1) end
  if asked and #asked > 0 and pcall_('EXISTS', unpack(asked)) ~= 0 then
    going = false
    return {}, set, false
  end
  if together and not fence then fence = setaside(fencekey, us, nwant) end
  return payloads, set, together and fence and call('MSETNX', unpack(set)) == 1
end

-- fenced takes a lock that was not taken together with others, and sets the next fence. It returns false if that cannot be.
function plain.fenced(lock, value, together)
  if not together and not call('SET', lock, value, 'NX', 'EX', ttl) then return false end
  if not fence then fence = setaside(fencekey, us, nwant) end
  if not fence then
    call('DEL', lock)
    return false
  end
  fence = fence + 1
  if fence % 100 == 0 or not hundreds then hundreds = fmt(' 0 %d', (fence - fence % 100) / 100) end
  return true
end

-- grant writes the records of jobs for the next wants.
--
-- A record is "3 <lengths and numbers>\n" and then queue, worker, lock key, cap owner
-- and payload, one after the other: no separator can occur in them. The numbers are
-- the lengths of the first four, fence, deaths, blame, the time (ms), and the job's
-- entry in the start_at list of a unique queue, "-" from any other. See give in
-- exchange_locks for all that is not plain.
function plain.grant(q, payloads, set, together)
  for i = 1, #payloads do
    local payload, lock, high, low = payloads[i], '', ' 0 0', ''
    local t, m, rest = byte(wants, wantat, wantat + 2)
    local token = sub(wants, wantat + 3, wantat + 2 + t)
    m = m * 256 + rest
    if set then
      lock = set[2 * i - 1]
      if not plain.fenced(lock, set[2 * i], together) then
        going = false
        return
      end
      local two = fence % 100
      high, low = hundreds, sub(pairsof, 2 * two + 1, 2 * two + 2)
    end
    local l = #lock
    if l ~= length then
      length, digits = l, l > 9 and l < 100 and sub(pairsof, 2 * l + 1, 2 * l + 2) or fmt('%d', l)
    end
    if not q.back then q.back = ' 0 0 ' .. clock .. ' -\n' .. q.name .. lead end
    if m ~= q.headof then q.head, q.headof = fmt('3 %d %d ', #q.name, named + m), m end
    local own = m > 0 and sub(wants, wantat + 3 + t, wantat + 2 + t + m) or ''
    local record = q.head .. digits .. high .. low .. q.back .. own .. tail .. lock .. payload
    fields[2 * w - 1], fields[2 * w], reply[w + 2] = token, record, record
    wantat = wantat + 3 + t + m
    bytes, w, q.n = bytes + #payload, w + 1, q.n + 1
    if bytes >= maxbytes then return end
  end
end

-- write writes the records that are not in Redis yet.
function plain.write()
  if 2 * w - 2 > written then call('HSET', inflight, unpack(fields, written + 1, 2 * w - 2)) end
  written = 2 * w - 2
end

-- some takes jobs of a queue for the next wants. How large payloads are is not known until they were read: a few at a
-- time, so that not many are read that the reply has no room for. It reports whether to go on.
function plain.some(q)
  local room, before, set, together = nwant - w + 1, q.n, nil, false
  if room > q.chunk then room = q.chunk end
  local payloads = plain.payloads(q, room)
  if q.locked then payloads, set, together = plain.locks(q, payloads) end
  plain.grant(q, payloads, set, together)
  for i = q.n - before + 1, together and #payloads or 0 do call('DEL', set[2 * i - 1]) end -- there was no room for these
  if not going or q.n - before < room or bytes >= maxbytes then return false end
  if 2 * w - written > 1000 then plain.write() end -- unpack takes only so many
  if bytes - q.begun >= 8192 * q.n then
    q.chunk = 4
  elseif q.chunk == 4 or bytes - q.begun >= 2048 * q.n then
    q.chunk = 16
  else
    q.chunk = 64
  end
  return true
end

-- queue takes jobs from the head of the next queue.
function plain.queue()
  local name, mode = names[nextqueue], modes[nextqueue]
  local q = {name = name, key = prefix .. 'queue:' .. name, locked = mode == '0l' or mode == '0lq', lined = mode == '0lq', n = 0, begun = bytes, chunk = 4}
  if not q.locked and mode ~= '0' then
    going = false
    return
  end
  q.deaths = obstacles.deadly and prefix .. 'resqued:deaths:' .. name
  if q.deaths and pcall_('EXISTS', q.deaths) == 0 then q.deaths = false end
  while w <= nwant and plain.some(q) do end
  plain.write() -- before their jobs leave the queue, as far as that can be
  if q.popped then
    if q.n == 0 then call('LPUSH', q.key, q.popped) end
  elseif q.n > 0 then
    call('LTRIM', q.key, fmt('%d', q.n), '-1')
  end
  if going and bytes < maxbytes then
    nextqueue = nextqueue + 1
  elseif going then
    if w <= nwant and (nextqueue < nqueue or call('LLEN', q.key) > 0) then reply[2] = 1 end
    nextqueue = nqueue + 1 -- the others have to wait
  end
end

while true do
  local n, answer = nwant > 0 and nqueue or 0, nil
  if going then n = math.min(nread + (nread == 0 and empty + 8 or 16), n) end
  plain.read(n)
  if not going then break end -- the rest is for exchange_slow
  if nextqueue == 1 then
    going, answer = plain.first(n)
    if answer then return answer end
    if going and nwant == 0 then return {reply[1], 0} end
    -- The first write must be one that a full server accepts, then the others pass as well.
    if going and nplain == 0 and nwant > 1 then call('PERSIST', info) end
  else
    going = plain.further(n)
  end
  while going and nextqueue <= nread and w <= nwant do plain.queue() end
  if going and (nextqueue > nqueue or w > nwant) then
    for i = w + 2, nwant + 2 do reply[i] = nil end
    return reply
  end
end
