-- straight begins the script exchange, which ends finished jobs and reserves new ones:
-- the one script of the hot path. Completions come first, so that what they free can be
-- taken at once.
--
-- Most calls are plain: jobs have ended well, and others are taken from the heads of
-- queues in which nothing is locked. Such a call goes straight through this file, with
-- as few commands as it can for all of its jobs together, and returns at its end. All
-- the rest, from the point that was reached, is in exchange.lua, behind the functions
-- that only it needs: to define them would cost a small call more than its job.
--
-- KEYS[1] resqued:inflight:<proc>
-- ARGV    prefix, proc, master, lock TTL (s), scan bound, repeat (1|0), lock key
--         style, number of plain completions, of others, of wants, of queues, of this
--         sending (twice, and 1 if it is one of the process's second lane), of names, of classes with names of their own, what to do with suspects
--         (a set them apart, t take them as any job, o take nothing else), number of
--         plain completions with a lock, which are the first; then
--         per plain completion: token
--         per plain completion with a lock: its key
--         per other completion: token, kind (d f r b t), queue, lock key, flags (c capped,
--           h holds class locks, k somebody wanted it to end, s it goes back after it has
--           run, n its attempts are counted), worker if mirrored else '', deaths, failure
--           record or '', with n behind the count (see counted in exchange), delay (ms)
--         per want: token, worker
--         if anything is wanted: all queues in one text, of which no more is read than is
--           looked at; see readahead
--         per name: queue, SHA-1 of a payload, what its lock is called
--         per class: its name
-- RETURNS {'FENCED'} if the process has no valid lease: nothing was done;
--         {'+' and the marks of the completions (see below), more (1|0), token, record, …}
--         from a call that went straight; else
--         {'OK', bounced, more (1|0), one of 1 (applied) 0 (late) x (stuck)
--          u (applied; it was a duplicate) for each completion as one text, the plain ones
--          first,
--          {reasons of the stuck}, {queues that are no lists}, {queues that were
--          out of step}, {queue, payload to name, …}, how many suspects wait in the
--          queues if this call has met any, token, record, …}

local inflight = KEYS[1]
local prefix, proc, master, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local again, style, onsuspects = ARGV[6] == '1', ARGV[7], ARGV[15]
local nplain, nother, nwant, nqueue = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local sending, nlocks = tonumber(ARGV[12]), tonumber(ARGV[16])
local plainat, locksat = 17, 17 + nplain
local othersat = locksat + nlocks
local wantsat = othersat + 9 * nother
local queuesat = wantsat + 2 * nwant
local ms, us = now()

local lease = tonumber(query('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
if not lease or lease < ms then return {'FENCED'} end

local jobs, me = prefix .. 'locket:job_locks:', owner(proc, '')
local fencekey, fence = prefix .. 'resqued:fence', nil
local counters, deathkey = prefix .. 'locket:queue_lock_counters', prefix .. 'resqued:deaths'
local straight = not again and ARGV[13] == '0' and ARGV[14] == '0' and onsuspects ~= 'o'

-- readahead reads up to n further queues. Of each there is the length of its name (four
-- bytes, the highest first), the length of its mode (one byte; 0: as that of the one
-- before), its mode and its name. A mode is the cap (0 none) and flags: l locked, k its
-- locks are named in Go, u unique, s strict.
local names, modes, nread, readat, lastmode = {}, {}, 0, 1, nil
local function readahead(n)
  local list, at = ARGV[queuesat], readat
  n = math.min(nread + n, nqueue)
  for i = nread + 1, n do
    local a, b, c, d, m = byte(list, at, at + 4)
    local from = at + 5 + m
    if m > 0 then lastmode = sub(list, at + 5, from - 1) end
    at = from + ((a * 256 + b) * 256 + c) * 256 + d
    names[i], modes[i] = sub(list, from, at - 1), lastmode
  end
  nread, readat = n, at
end

if may then
  need(inflight, 'HDEL', 'HGET', 'HINCRBY', 'HKEYS')
  need(jobs, 'GET', 'MGET', 'DEL')
  if nplain + nother > 0 then need(prefix .. 'stat:processed', 'INCRBY') end
  if nwant > 0 then
    need(inflight, 'HSET', 'PERSIST')
    need(jobs, 'SET')
    need(fencekey, 'GETSET')
    need(prefix .. 'pause:all', 'EXISTS')
    readahead(nqueue)
    needlist(prefix .. 'queue:' .. (names[1] or ''))
    -- Those for a unique queue are asked for later, before anything is done.
    for i = 1, nqueue do straight = straight and not find(modes[i], 'u', 1, true) end
    nread, readat = 0, 1 -- the pauses of some are asked for when they are read
  end
end

-- Plain are the jobs that have ended well, of which nothing but the record and the lock
-- is left. A call that does not go straight has more to ask before the first write.
local nready = straight and nplain or 0
local size = nready == 1 and query('HDEL', inflight, ARGV[plainat]) or query('HLEN', inflight)
if type(size) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. inflight .. ' is no hash; move it away')
end

-- there has, for each token that had a record, which completion told of it first;
-- alltold says that each completion was the first to tell of a record.
local there, alltold = {}, true
if nready == 1 then
  alltold = size == 1
elseif size > 8 * nready then
  for c = 1, nready do
    local token = ARGV[plainat + c - 1]
    if call('HDEL', inflight, token) == 1 then there[token] = c else alltold = false end
  end
elseif nready > 0 then
  for _, token in ipairs(call('HKEYS', inflight)) do there[token] = true end
  for c = 1, nready do
    local token = ARGV[plainat + c - 1]
    if there[token] == true then there[token] = c else alltold = false end
  end
  call('HDEL', inflight, unpack(ARGV, plainat, plainat + nready - 1))
end

-- applied are the marks of completions one by one, released the locks of those that were
-- applied. Neither is needed while all goes well.
local applied, released, processed = {}, {}, nready
if not alltold then
  processed = 0
  for c = 1, nready do
    local token = ARGV[plainat + c - 1]
    applied[c] = '0'
    if there[token] == c then
      applied[c], processed = '1', processed + 1
      if c <= nlocks then
        released[#released + 1] = ARGV[locksat + c - 1]
        release(released[#released], me .. token)
      end
    end
  end
elseif nready > 0 and nlocks == 1 then
  release(ARGV[locksat], me .. ARGV[plainat])
elseif nready > 0 and nlocks > 1 then
  local values, ours = pcall_('MGET', unpack(ARGV, locksat, othersat - 1)), 0
  for c = 1, nlocks do
    if values[c] == me .. ARGV[plainat + c - 1] then ours = ours + 1 end
  end
  if ours == nlocks then
    call('DEL', unpack(ARGV, locksat, othersat - 1))
  else
    for c = 1, nlocks do release(ARGV[locksat + c - 1], me .. ARGV[plainat + c - 1]) end
  end
end
if processed > 0 then pcall_('INCRBY', prefix .. 'stat:processed', processed) end

-- A request whose answer did not come may have been under way still when it was
-- repeated. What it popped now, under tokens that are used up, nobody would run.
local info, repeated = prefix .. 'resqued:proc:' .. proc, sending % 2 == 0 and 'repeated' or 'repeated1'
if nwant > 0 and (tonumber(pcall_('HGET', info, repeated) or 0) or 0) > sending then nwant = 0 end

-- The reply begins as the wants, with the room for what stands before them: a record takes
-- the place of its worker, and the table never has to grow.
local reply = nwant > 1000 and {} or {unpack(ARGV, wantsat - 2, queuesat - 1)}
for i = #reply + 1, 2 * nwant + 2 do reply[i] = ARGV[wantsat - 3 + i] end
reply[1], reply[2] = '+' .. (alltold and string.rep('1', nready) or table.concat(applied)), 0
local w, written = 1, 2 -- the next want; what of the reply is in Redis, too
local bytes, maxbytes = 0, 4194304 -- a reply of many large payloads would block the server

-- nextfence returns a number larger than all before it, as text: its last two digits
-- apart, because to format numbers is dear. The first sets so many aside as there are
-- wants, from the time on: then it takes one command, nearly always.
local hundreds
local pairsof = '0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849'
  .. '5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899'
local function nextfence()
  if not fence then
    local last = pcall_('GETSET', fencekey, fmt('%.0f', us + nwant))
    fence = tonumber(last) or 0
    if fence < us then fence = us end
    if fence > us or refused(last) then call('SET', fencekey, fmt('%.0f', fence + nwant)) end
  end
  fence = fence + 1
  local low = fence % 100
  if low == 0 or not hundreds then hundreds = fmt('%.0f', (fence - low) / 100) end
  return hundreds, sub(pairsof, 2 * low + 1, 2 * low + 2)
end

-- digits is a small number as text.
local texts = {}
local function digits(n)
  local text = texts[n]
  if not text then
    text = fmt('%d', n)
    texts[n] = text
  end
  return text
end

-- A record is "3 <lengths and numbers>\n" and then queue, worker, lock key, cap
-- owner and payload, one after the other: no separator can occur in them. start is
-- the job's entry in the start_at list of a unique queue, "-" from any other queue.
-- frame returns what the records of many jobs have in common.
local function frame(queue, cap, deaths, blame, start)
  return {'3 ' .. #queue .. ' ', ' ' .. #cap .. ' ', fmt(' %d %d %.0f %s\n', deaths, blame, ms, start) .. queue, cap}
end

-- recordof returns the record of a job for the next want.
local function recordof(worker, f, payload, lock)
  local high, low = '0', ''
  if lock ~= '' then high, low = nextfence() end
  bytes, w = bytes + #payload, w + 1
  return f[1] .. digits(#worker) .. ' ' .. digits(#lock) .. f[2] .. high .. low .. f[3] .. worker .. lock .. f[4] .. payload
end

-- flush writes the records of the jobs up to the next want, before these leave their
-- queue, as far as that can be.
local function flush()
  if 2 * w > written then call('HSET', inflight, unpack(reply, written + 1, 2 * w)) end
  written = 2 * w
end

-- peek returns at most room payloads of a queue, those behind the first n; the only one
-- of a queue has left it. What is no list has none, and err.
local function peek(key, n, room)
  if n > 0 or room > 1 then return checked(pcall_('LRANGE', key, n, n + room - 1)) end
  local v = checked(pcall_('LPOP', key))
  return type(v) == 'string' and {v} or type(v) == 'table' and v or {}
end

-- reserve_straight takes jobs from the head of a queue. It returns false when it meets
-- anything else than a job whose lock is free.
local function reserve_straight(queue, locked)
  local key, f, n, before = prefix .. 'queue:' .. queue, nil, 0, bytes
  -- Nobody knows how large payloads are until they were read: a few at a time, so that
  -- not many are read that the reply has no room for.
  local chunk, met, popped = 4, false, nil
  while w <= nwant do
    local room, last, lock = math.min(chunk, nwant - w + 1), n, ''
    local payloads = peek(key, n, room)
    if payloads.err then return false end
    if n == 0 and room == 1 then popped = payloads[1] end
    for _, payload in ipairs(payloads) do
      if locked then
        lock = style ~= 'payload' and quickname(jobs, payload)
        if not lock then
          if not lockname then parts() end
          local ok, name = pcall(lockname, payload, style)
          lock = jobs .. (ok and name or redis.sha1hex(payload))
        end
        if not call('SET', lock, me .. reply[2 * w + 1], 'NX', 'EX', ttl) then break end
      end
      f = f or frame(queue, '', 0, 0, '-')
      local at = 2 * w + 2
      reply[at] = recordof(reply[at], f, payload, lock)
      n = n + 1
      if bytes >= maxbytes then break end
    end
    met = n - last < #payloads and bytes < maxbytes
    if n - last < room or bytes >= maxbytes then break end
    if 2 * w - written > 1000 then flush() end -- unpack takes only so many
    chunk = bytes - before < 8192 * n and 16 or 4
  end
  flush()
  if popped then
    if n == 0 then call('LPUSH', key, popped) end
  elseif n > 0 then
    call('LTRIM', key, n, -1)
  end
  return not met
end

-- What keeps jobs from being taken straight: locked ones and suspects, wherever they
-- are, and a pause. Nearly always there is nothing of it, which one command tells; the
-- pauses of further queues are asked for only when these have their turn.
local obstacles = {counters, deathkey, prefix .. 'pause:all', prefix .. 'pause-all-workers'}
local nextqueue = 1
if nwant > 0 then readahead(8) end
for i = 1, nread do obstacles[4 + i] = prefix .. 'pause:queue:' .. names[i] end
if straight and nother == 0 and pcall_('EXISTS', unpack(obstacles)) == 0 then
  if nwant == 0 then return {reply[1], 0} end
  -- The first write must be one that a full server accepts, then the others pass, too.
  if nplain == 0 and nwant > 1 then call('PERSIST', info) end
  while nextqueue <= nqueue and w <= nwant do
    -- Where there are many queues most are empty, which one command tells of some.
    if nextqueue > nread then
      readahead(16)
      local keys, queue = {}, prefix .. 'queue:'
      for i = nextqueue, nread do keys[i - nextqueue + 1] = queue .. names[i] end
      if pcall_('EXISTS', unpack(keys)) == 0 then
        nextqueue = nread
      else
        for i = nextqueue, nread do keys[i - nextqueue + 1] = prefix .. 'pause:queue:' .. names[i] end
        if pcall_('EXISTS', unpack(keys)) ~= 0 then break end
      end
    end
    local mode = modes[nextqueue]
    if mode ~= '0' and mode ~= '0l' or not reserve_straight(names[nextqueue], mode == '0l') then break end
    if bytes < maxbytes then
      nextqueue = nextqueue + 1
    else
      if w <= nwant and (nextqueue < nqueue or call('LLEN', prefix .. 'queue:' .. names[nextqueue]) > 0) then reply[2] = 1 end
      nextqueue = nqueue + 1 -- the others have to wait
    end
  end
  if nextqueue > nqueue or w > nwant then
    for i = 2 * w + 1, 2 * nwant + 2 do reply[i] = nil end
    return reply
  end
end
