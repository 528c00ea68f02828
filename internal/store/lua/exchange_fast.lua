-- exchange_fast and exchange_slow are the script exchange, which ends finished jobs and
-- reserves new ones: the one script of the hot path. Completions come first, so that what they
-- free can be taken at once.
--
-- exchange_fast is the fast path. Most calls are plain: jobs have ended well, and others are
-- taken from the heads of queues in which nothing is locked. Such a call ends in
-- this file, with as few commands as it can for all of its jobs together. exchange_slow handles the rest, from the point that was reached, behind the functions
-- that only it needs. There is no function here: to define one that refers to many variables
-- costs about as much as a simple command. For the same reason numbers come as bytes, whole
-- numbers become text by %d (any other way takes three times as long), and what can be joined
-- once is.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   master
-- ARGV[4]   head, see below
-- ARGV[5…]  per plain completion: token;
--           per plain completion with a lock, which are the first of these: its key;
--           per other completion: token, kind (d f r b t, u its payload stands elsewhere),
--             queue, lock key, flags (c capped, h holds class locks, k it was asked to end,
--             s it goes back after it has run, n its attempts are counted, g the payload is
--             missing in its failure record, l its payload is too large for that, x it is
--             parked if it cannot be written, see parked, m its failure goes to the list of
--             its queue as Resque's multi-queue failure backend has them, o its lock has another
--             name by now: it goes to the head of its queue, not of the line for that lock), worker if mirrored
--             else '', deaths, failure record or '', with n behind the count (see counted in
--             exchange_slow), with g behind where the payload belongs, of a u behind what has
--             it, of kind r what goes back in place of the job's own bytes or '', delay (ms);
--           if anything is wanted: all wants in one text, then all queues in one, of which
--             no more is read than is looked at;
--           per name: queue, SHA-1 of a payload, what its lock and its tenant are called;
--           per class: its name;
--           per fair queue: its name; "<index of the argument that names the tenant, or -> <weight
--             of a tenant>" and, for tenants of other weights, " <weight> <length> <tenant>"
-- RETURNS   {'FENCED'} the process has no valid lease, or wants jobs and has not beaten for
--           long: nothing was done;
--           {'+' and the marks of the completions (see below), more (1|0; 2 no, and the job has waited in a line), record, …}
--           from a call that took the fast path alone, for the first of the wants;
--           {'OK', bounced, more (1|0), one of 1 (applied) 0 (late) x (stuck)
--           u (applied; it was a duplicate) p (applied; it was parked) for each completion
--           as one text, the plain ones first, {reasons of the stuck and parked; then why no
--           lock can be taken, if so}, {queues that are no lists}, {queues that were out of
--           step}, {queue, payload whose lock, or tenant, is to be named, …}, how many suspects wait in the queues if this
--           call has met any, {token of a job that has waited in a line, or may have, …}, token, record, …};
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      On the fast path, with c completions and j jobs taken from q queues: 3 commands;
--           2 to 5 for all completions together, and 2 per lock that is not removed with
--           the others; 1 per 16 queues; per queue with jobs 2 or 3, and 1 more per 64 jobs;
--           1 for the locks of up to 64 jobs, and 1 per job where one of these is held; 1 for
--           the fences of all; 15 that end a job and hand its lock to the next of its line, where nothing
--           else waits. O(c + j + q). On the slow path see exchange_slow.
--
-- The head is a text of fields, with a space between two: whether the call may take the fast path
-- (0 or 1), the process's lane (0 or 1), the lock key style (c by class and arguments, p by payload),
-- the lock TTL (s), how long the lease has to last yet (ms), the number of this sending; the numbers of
-- plain completions, of those of them with a lock, of other completions, of wants, of queues; how many of
-- the first queues are likely to be empty; then, which only exchange_slow reads, the numbers of names
-- and of classes with names of their own, the scan bound, whether the call repeats another (0 or 1), and
-- what to do with suspects (a set them apart, t take them as any job, o take nothing else).
--
-- The wants are what the names of all their workers begin with and end with, each
-- behind two bytes with its length; then for each one byte with the length of its token, two with that of
-- the rest of its worker's name, the token and the rest.
--
-- Of each queue there is the length of its name (four bytes), the length of its mode (one
-- byte; 0: as that of the one before), its mode and its name. A mode is the cap (0 none)
-- and flags: l locked, k its locks are named in Go, u unique, s strict, q its locked jobs wait in lines,
-- f its tenants take turns.

local stringend, closing, squeeze, envelope, lockname -- of a payload; defined when they are needed

local inflight, prefix, proc = KEYS[1], ARGV[1], ARGV[2]
local fastpath, lane, style, ttl, lasts, sending, nplain, nlocks, nother, nwant, nqueue, empty, headends =
  match(ARGV[4], '^(%d) (%d) (%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ()')
fastpath, style = fastpath == '1', style == 'p' and 'payload' or 'class'
nplain, nlocks, nother = tonumber(nplain), tonumber(nlocks), tonumber(nother)
nwant, nqueue, empty = tonumber(nwant), tonumber(nqueue), tonumber(empty)
local plainat, locksat = 5, 5 + nplain
local othersat = locksat + nlocks
local wantsat = othersat + 9 * nother
local queuesat = wantsat + 1

local ms, us = now()

local clock = fmt('%d', ms)
do
  -- A lease that has not been extended for a while may be of the time before the clock
  -- went forward: a beat notices, before jobs are taken. Of two
  -- times with as many digits the later is the larger text.
  local a = ms + tonumber(lasts)
  local lease, least = query('ZSCORE', prefix .. 'resqued:procs', proc), fmt('%d', a)
  if type(lease) ~= 'string' or #lease ~= #least or lease < least then
    lease = tonumber(type(lease) == 'string' and lease or 0)
    if not lease or lease < (nwant > 0 and a or ms) then return {'FENCED'} end
  end
end

local jobs, me = prefix .. 'locket:job_locks:', owner(proc, '')
local fencekey, fence, hundreds = prefix .. 'resqued:fence', nil, nil
local counters, deathkey = prefix .. 'locket:queue_lock_counters', prefix .. 'resqued:deaths'

if may then
  need(inflight, 'HDEL', 'HGET', 'HINCRBY', 'HKEYS')
  need(jobs, 'GET', 'MGET', 'DEL')
  need(prefix .. 'resqued:seen:', 'UNLINK')
  if nplain + nother > 0 then
    need(prefix .. 'stat:processed', 'INCRBY')
    need(prefix .. 'resqued:awaited', 'HMGET') -- who waits for the locks
    if lacks(prefix .. 'resqued:ready:', 'ZADD') and pcall_('EXISTS', prefix .. 'resqued:awaited') ~= 0 then
      need(prefix .. 'resqued:ready:', 'ZADD') -- else a line would not hear of its lock
    end
  end
  if nwant > 0 then
    need(inflight, 'HSET', 'PERSIST')
    need(jobs, 'SET', 'MSETNX')
    need(fencekey, 'GETSET')
    need(deathkey .. ':', 'HGET', 'HMGET')
    need(prefix .. 'pause:all', 'EXISTS')
    need(prefix .. 'resqued:line:', 'LRANGE', 'LPOP', 'RPUSH')
    need(prefix .. 'resqued:lines:', 'ZADD', 'ZREM')
    need(prefix .. 'resqued:ready:', 'ZPOPMIN')
    need(prefix .. 'resqued:awaited', 'HGET', 'HSET', 'HINCRBY', 'HDEL')
    need(prefix .. 'resqued:turn:', 'LRANGE', 'RPUSH', 'LTRIM')
    need(prefix .. 'resqued:turns:', 'ZADD', 'ZREM', 'ZRANGE', 'ZRANGEBYSCORE')
    local at, list = 1, ARGV[queuesat]
    for i = 1, nqueue do
      local a, b, c, d, m = byte(list, at, at + 4)
      local ends = at + 4 + m + ((a * 256 + b) * 256 + c) * 256 + d
      if i == 1 then needlist(prefix .. 'queue:' .. sub(list, at + 5 + m, ends)) end
      -- Those for a unique queue are asked for later, before anything is done.
      fastpath = fastpath and not find(sub(list, at + 5, at + 4 + m), 'u', 1, true)
      at = ends + 1
    end
  end
end

-- Plain are the jobs that have ended well, of which nothing but the record and the lock
-- is left. A call that may not take the fast path has more to ask before the first write.
local nready = fastpath and nplain or 0

-- ours reports whether all locks are still held for these jobs. A job that holds its lock has
-- not been recovered: then which of the records are there need not be asked.
local ours = nready > 1 and nlocks > 0
if ours then
  local values = pcall_('MGET', unpack(ARGV, locksat, othersat - 1))
  for c = 1, nlocks do
    if values[c] ~= me .. ARGV[plainat + c - 1] then
      ours = false
      break
    end
  end
end
local fast = ours and nlocks == nready
local size
if nready == 1 or fast then
  size = query('HDEL', inflight, unpack(ARGV, plainat, plainat + nready - 1))
else
  size = query('HLEN', inflight)
end
if type(size) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. inflight .. ' is no hash; move it away')
end

-- alltold: each completion was the first one of its record. If not, applied
-- are the marks of the completions, released the locks of those that were applied.
local alltold, applied, released, processed = true, {}, {}, nready
if nready == 1 then
  alltold = size == 1
  if not alltold then
    applied[1], processed = '0', 0
  elseif nlocks == 1 then
    -- Its lock may be handed over below.
    released.kept = pcall_('GET', ARGV[locksat]) == me .. ARGV[plainat]
  end
elseif nready > 1 then
  -- there has, for each token that had a record, which completion was the first.
  local there = {}
  if fast then
    alltold = size == nready -- or a record had two
    for c = nready, alltold and nready + 1 or 1, -1 do there[ARGV[plainat + c - 1]] = c end
  elseif size > 8 * nready then
    for c = 1, nready do
      local token = ARGV[plainat + c - 1]
      if call('HDEL', inflight, token) == 1 then there[token] = c else alltold = false end
    end
  else
    for _, token in ipairs(call('HKEYS', inflight)) do there[token] = true end
    for c = 1, nready do
      local token = ARGV[plainat + c - 1]
      if there[token] == true then there[token] = c else alltold = false end
    end
    call('HDEL', inflight, unpack(ARGV, plainat, plainat + nready - 1))
  end
  local together = ours and (fast or alltold)
  if together then call('DEL', unpack(ARGV, locksat, othersat - 1)) end
  if not (together and alltold) then
    processed = 0
    for c = 1, nready do
      local token = ARGV[plainat + c - 1]
      applied[c] = '0'
      if there[token] == c then
        applied[c], processed = '1', processed + 1
        if c <= nlocks then
          local lock = ARGV[locksat + c - 1]
          released[#released + 1] = lock
          if not together then release(lock, me .. token) end
        end
      end
    end
  end
end
if processed > 0 then pcall_('INCRBY', prefix .. 'stat:processed', processed == 1 and '1' or fmt('%d', processed)) end

-- A request whose answer did not come may have been under way still when it was
-- repeated. What it popped now, under tokens that are used up, no thread would run.
local info, repeated = prefix .. 'resqued:proc:' .. proc, lane == '0' and 'repeated' or 'repeated1'
if nwant > 0 then
  local last = pcall_('HGET', info, repeated)
  if last and (tonumber(last) or 0) > tonumber(sending) then nwant = 0 end
end

-- Tables begin with the room that they need, so that they never have to grow: what stands
-- in them first means nothing.
local reply = {unpack(ARGV, 1, nwant < 1000 and nwant + 2 or 2)}
local fields = {unpack(ARGV, 1, nwant < 1000 and 2 * nwant or 0)} -- token, record, …
reply[1], reply[2] = '+' .. (alltold and string.rep('1', nready) or table.concat(applied)), 0
local w, written = 1, 0 -- the next want; how many of the fields are in Redis
local bytes, maxbytes = 0, 4194304 -- a reply of many large payloads would block the server

-- What keeps jobs from being taken on the fast path: locked ones, wherever they wait, counts of
-- deaths, which keep only their jobs from it, locks that have expired under their holders, and
-- a pause. Nearly always there is nothing of it, which one command shows; the
-- pauses of further queues are asked for only when these have their turn. What stands last
-- keeps the place of the first queue's.
local obstacles = {deathkey, counters, prefix .. 'resqued:relock', prefix .. 'pause:all', prefix .. 'pause-all-workers', prefix .. 'resqued:lined', counters}
local names, modes, nread, readat, lastmode, nextqueue = {}, {}, 0, 1, nil, 1
local list, wants, wantat = ARGV[queuesat], ARGV[wantsat], nil
local lead, tail, named -- what all names of workers begin and end with, and its length
if nwant > 0 then
  local a, b = byte(wants, 1, 2)
  a = a * 256 + b
  lead = sub(wants, 3, 2 + a)
  local c, d = byte(wants, 3 + a, 4 + a)
  c = c * 256 + d
  tail, named, wantat = sub(wants, 5 + a, 4 + a + c), a + c, 5 + a + c
end
local pairsof = '0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849'
  .. '5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899'
local length, digits -- of the last lock, and as text

local going = fastpath and nother == 0
if released.kept and not going then
  call('DEL', ARGV[locksat])
  released.kept = false
end
while true do
  local n = nwant > 0 and nqueue or 0
  if going then n = math.min(nread + (nread == 0 and empty + 8 or 16), n) end
  for i = nread + 1, n do
    local a, b, c, d, m = byte(list, readat, readat + 4)
    local from = readat + 5 + m
    if m > 0 then lastmode = sub(list, readat + 5, from - 1) end
    readat = from + ((a * 256 + b) * 256 + c) * 256 + d
    names[i], modes[i] = sub(list, from, readat - 1), lastmode
  end
  nread = n
  if not going then break end -- the rest is for exchange_slow
  if nextqueue == 1 then
    -- The first queues may be known to have been empty: then one command shows whether
    -- they still are, and nothing else is asked of them.
    if empty > n then empty = n end
    for i = 1, empty do obstacles[6 + i] = prefix .. 'queue:' .. names[i] end
    for i = empty + 1, n do obstacles[6 + i] = prefix .. 'pause:queue:' .. names[i] end
    local met = pcall_('EXISTS', unpack(obstacles))
    going = met == 0
    if released.kept then
      -- Where all that waits stands in lines, and none may be served but that for this lock, the call
      -- that ends its holder begins the next of the line. In any other case the lock is released.
      local lock, l, queue, at, keys = ARGV[locksat], nil, nil, nil, {}
      if met == 1 and n == nqueue then -- with no wants, no queues
        local queues = pcall_('HGET', prefix .. 'resqued:awaited', sub(lock, #jobs + 1))
        l, queue = match(type(queues) == 'string' and queues or '', '^(%d+) (.*)$')
      end
      for i = 1, queue and tonumber(l) == #queue and n or 0 do -- it is awaited by one queue
        if names[i] == queue and (modes[i] == '0lq' or modes[i] == '0lkq') then at = i end
        keys[#keys + 1] = prefix .. 'resqued:ready:' .. names[i]
        keys[#keys + 1] = prefix .. 'resqued:turns:' .. names[i]
        if i > empty then keys[#keys + 1] = prefix .. 'queue:' .. names[i] end
      end
      keys[#keys + 1] = at and prefix .. 'pause:queue:' .. queue or nil
      if at and pcall_('EXISTS', unpack(keys)) == 0 then
        local list = prefix .. 'resqued:line:' .. l .. ':' .. queue .. ':' .. sub(lock, #jobs + 1)
        local waiting, lined = pcall_('LRANGE', list, '0', '1'), prefix .. 'resqued:lined'
        fence = waiting[2] and setaside(fencekey, us, nwant) or nil -- the last of a line ends it
        local left = fence and pcall_('HINCRBY', lined, queue, '-1')
        if type(left) == 'number' and left > 0 then
          local t, m, rest = byte(wants, wantat, wantat + 2)
          local from = wantat + 3 + t
          local token, worker = sub(wants, wantat + 3, from - 1), lead .. sub(wants, from, from + m * 256 + rest - 1) .. tail
          local record = fmt('3 %d %d %d 0 %d 0 0 %d -\n', #queue, #worker, #lock, fence + 1, ms) .. queue .. worker .. lock .. waiting[1]
          call('SET', lock, me .. token, 'EX', ttl)
          call('HSET', inflight, token, record)
          call('LPOP', list)
          return {reply[1], 2, record}
        elseif type(left) == 'number' and left < 0 then
          call('HDEL', lined, queue) -- that there are lines is not known
        elseif type(left) == 'number' then
          call('HINCRBY', lined, queue, '1')
        end
      end
      call('DEL', lock)
      released.kept = false
    end
    if not going and pcall_('EXISTS', prefix .. 'resqued:lined') == 1 then
      -- Lines concern their own queues, and who releases the locks for which they wait.
      local waited, few = {}, nlocks <= 1000
      for c = 1, few and nlocks or 0 do waited[c] = sub(ARGV[locksat + c - 1], #jobs + 1) end
      local lined = n > 0 and pcall_('HMGET', prefix .. 'resqued:lined', unpack(names, 1, n)) or {}
      local some = few and nlocks > 0 and pcall_('HMGET', prefix .. 'resqued:awaited', unpack(waited)) or {}
      going = few and not lined.err and not some.err
      for i = 1, going and n or 0 do going = going and not lined[i] end
      for c = 1, going and nlocks or 0 do going = going and not some[c] end
      if going then
        obstacles[6], obstacles.lines = counters, true
        going = pcall_('EXISTS', unpack(obstacles)) == 0
      else
        -- What exchange_slow need not ask again: whether lines are all that there is, and who waits for
        -- the locks.
        obstacles.stop, obstacles.known, obstacles.to = true, met == 1, n
        obstacles.some = not some.err and nlocks > 0 and some or nil
      end
    end
    local dead = not going and not obstacles.stop and pcall_('EXISTS', deathkey, prefix .. 'resqued:suspects') or 0
    if type(dead) == 'number' and dead > 0 then
      obstacles[1], obstacles.deadly, obstacles.apart = counters, true, dead == 2
      going = pcall_('EXISTS', unpack(obstacles)) == 0
    end
    if going then
      nextqueue = empty + 1
    elseif empty > 0 and not obstacles.stop then
      for i = 1, empty do obstacles[6 + i] = prefix .. 'pause:queue:' .. names[i] end
      going = pcall_('EXISTS', unpack(obstacles)) == 0
    end
    if going and nwant == 0 then return {reply[1], 0} end
    -- The first write must be one that a full server accepts, then the others pass as well.
    if going and nplain == 0 and nwant > 1 then call('PERSIST', info) end
  else
    -- Where there are many queues most are empty, which one command shows of several.
    local keys = {}
    for i = nextqueue, n do keys[i - nextqueue + 1] = prefix .. 'queue:' .. names[i] end
    local lined = obstacles.lines and nextqueue <= n and pcall_('HMGET', prefix .. 'resqued:lined', unpack(names, nextqueue, n)) or {}
    going = not lined.err
    for i = 1, going and n - nextqueue + 1 or 0 do going = going and not lined[i] end
    if not going then -- some of these have lines
    elseif pcall_('EXISTS', unpack(keys)) == 0 then
      nextqueue = n + 1
    else
      for i = nextqueue, n do keys[i - nextqueue + 1] = prefix .. 'pause:queue:' .. names[i] end
      going = pcall_('EXISTS', unpack(keys)) == 0
    end
  end
  while going and nextqueue <= nread and w <= nwant do
    local queue, locked = names[nextqueue], modes[nextqueue] == '0l' or modes[nextqueue] == '0lq'
    if not locked and modes[nextqueue] ~= '0' then
      going = false
      break
    end
    -- How large payloads are is not known until they were read: a few at a time, so that
    -- not many are read that the reply has no room for.
    local key, n, begun, chunk, popped = prefix .. 'queue:' .. queue, 0, bytes, 4, nil
    -- What the records of jobs of this queue begin with, if the rest of the worker's name is
    -- that long, and what follows their numbers.
    local head, headof, back = nil, nil, nil
    local deaths = obstacles.deadly and prefix .. 'resqued:deaths:' .. queue
    if deaths and pcall_('EXISTS', deaths) == 0 then deaths = false end
    while w <= nwant do
      local room, taken = nwant - w + 1, n
      if room > chunk then room = chunk end
      -- What is no list has no payloads; the only one of a queue has left it.
      local payloads
      if n > 0 or room > 1 then
        payloads = query('LRANGE', key, n == 0 and '0' or fmt('%d', n), fmt('%d', n + room - 1))
      else
        popped = query('LPOP', key)
        payloads = type(popped) == 'table' and popped or {popped or nil}
      end
      if payloads.err then popped, payloads, going = nil, {}, false end
      if deaths and #payloads > 0 then
        -- A job that has died, and all behind it, are for exchange_slow.
        local died = {}
        for i = 1, #payloads do died[i] = redis.sha1hex(payloads[i]) end
        died = pcall_('HMGET', deaths, unpack(died))
        for i = 1, #payloads do
          if not going then
            payloads[i] = nil
          elseif died[i] then
            going, payloads[i] = false, nil
          end
        end
      end
      local size, tight = 0, false
      for i = 1, #payloads do size = size + #payloads[i] end
      if locked and size > 0 and size < 400 * #payloads then tight = not spaced(table.concat(payloads)) end
      -- All locks of these are taken by one command, if they are free and no two are the same. It
      -- gives them no time to live: that they get with the first beat after it, and what has none is in no
      -- job's way once its process is gone (see held in records).
      local set, together = nil, false
      if locked then
        together = #payloads > 1
        local at, met = wantat, together and {}
        set = together and {unpack(fields, 1, 2 * #payloads)} or {'', ''}
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
        -- Where a suspect wants one of them, see requests in exchange_slow.
        local asked = obstacles.apart and modes[nextqueue] == '0lq' and {}
        for i = 1, asked and #payloads or 0 do asked[i] = prefix .. 'resqued:request:' .. sub(set[2 * i - 1], #jobs + 1) end
        if asked and #asked > 0 and pcall_('EXISTS', unpack(asked)) ~= 0 then going, payloads, together = false, {}, false end
        if together and not fence then fence = setaside(fencekey, us, nwant) end
        together = together and fence and call('MSETNX', unpack(set)) == 1
      end
      for i = 1, #payloads do
        local payload, lock, high, low = payloads[i], '', ' 0 0', ''
        local t, m, rest = byte(wants, wantat, wantat + 2)
        local token = sub(wants, wantat + 3, wantat + 2 + t)
        m = m * 256 + rest
        if locked then
          lock = set[2 * i - 1]
          if not together and not call('SET', lock, set[2 * i], 'NX', 'EX', ttl) then
            going = false
            break
          end
          if not fence then fence = setaside(fencekey, us, nwant) end
          if not fence then
            call('DEL', lock)
            going = false
            break
          end
          fence = fence + 1
          local two = fence % 100
          if two == 0 or not hundreds then hundreds = fmt(' 0 %d', (fence - two) / 100) end
          high, low = hundreds, sub(pairsof, 2 * two + 1, 2 * two + 2)
        end
        local l = #lock
        if l ~= length then
          length, digits = l, l > 9 and l < 100 and sub(pairsof, 2 * l + 1, 2 * l + 2) or fmt('%d', l)
        end
        if not back then back = ' 0 0 ' .. clock .. ' -\n' .. queue .. lead end
        if m ~= headof then head, headof = fmt('3 %d %d ', #queue, named + m), m end
        -- A record is "3 <lengths and numbers>\n" and then queue, worker, lock key, cap owner
        -- and payload, one after the other: no separator can occur in them. The numbers are
        -- the lengths of the first four, fence, deaths, blame, the time (ms), and the job's
        -- entry in the start_at list of a unique queue, "-" from any other. See give in
        -- exchange_slow for all that is not plain.
        local own = m > 0 and sub(wants, wantat + 3 + t, wantat + 2 + t + m) or ''
        local record = head .. digits .. high .. low .. back .. own .. tail .. lock .. payload
        fields[2 * w - 1], fields[2 * w], reply[w + 2] = token, record, record
        wantat = wantat + 3 + t + m
        bytes, w, n = bytes + #payload, w + 1, n + 1
        if bytes >= maxbytes then break end
      end
      for i = n - taken + 1, together and #payloads or 0 do call('DEL', set[2 * i - 1]) end -- there was no room for these
      if not going or n - taken < room or bytes >= maxbytes then break end
      if 2 * w - written > 1000 then -- unpack takes only so many
        call('HSET', inflight, unpack(fields, written + 1, 2 * w - 2))
        written = 2 * w - 2
      end
      if bytes - begun >= 8192 * n then
        chunk = 4
      elseif chunk == 4 or bytes - begun >= 2048 * n then
        chunk = 16
      else
        chunk = 64
      end
    end
    -- Records are written before their jobs leave the queue, as far as that can be.
    if 2 * w - 2 > written then call('HSET', inflight, unpack(fields, written + 1, 2 * w - 2)) end
    written = 2 * w - 2
    if popped then
      if n == 0 then call('LPUSH', key, popped) end
    elseif n > 0 then
      call('LTRIM', key, fmt('%d', n), '-1')
    end
    if going and bytes < maxbytes then
      nextqueue = nextqueue + 1
    elseif going then
      if w <= nwant and (nextqueue < nqueue or call('LLEN', key) > 0) then reply[2] = 1 end
      nextqueue = nqueue + 1 -- the others have to wait
    end
  end
  if going and (nextqueue > nqueue or w > nwant) then
    for i = w + 2, nwant + 2 do reply[i] = nil end
    return reply
  end
end
