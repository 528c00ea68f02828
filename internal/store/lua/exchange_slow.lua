-- exchange_slow handles what exchange_fast left of a call: other completions, queues with
-- locked jobs, caps, unique queues, suspects, pauses, repeated calls. Its KEYS, ARGV and RETURNS
-- are those of exchange_fast, whose variables it goes on with.
--
-- COST      3 commands per plain completion, 5 to 15 per other one, and those of freed in
--           blocked_queues. Per queue 2 or 3; per job that is looked at 3, that is taken 3
--           more; at most the scan bound of jobs per queue, and four times that in all. Per fair queue about 10, 2 per
--           tenant of whom jobs are taken, and 1 per tenant of the 512 jobs at its head. Newer
--           jobs of a queue are taken where they stand: O(distance from its nearer end).

if not lockname then stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname) end

local master = ARGV[3]
local bound, nnames, nclasses, again, onsuspects
do
  local a, b, c, d, e, f, g, h, i, repeats, suspects = byte(ARGV[4], 21, 31)
  nnames, nclasses, bound = (a * 256 + b) * 256 + c, (d * 256 + e) * 256 + f, (g * 256 + h) * 256 + i
  again, onsuspects = repeats == 1, string.char(suspects)
end

-- The jobs that the fast path has taken so far stand behind more in front.
reply = {'OK', 0, 0, '', {}, {}, {}, {}, 0, {}}
for i = 1, 2 * w - 2 do reply[10 + i] = fields[i] end
for c = 1, alltold and nready or 0 do
  applied[c] = '1'
  if c <= nlocks then released[c] = ARGV[locksat + c - 1] end
end

if may and nwant > 0 and not fastpath then needcompanions(prefix) end

local reasons, failed = reply[5], 0
processed = 0

-- There is nothing of all this, which one command shows nearly always.
obstacles.calm = obstacles.known or pcall_('EXISTS', deathkey, counters, prefix .. 'resqued:relock', prefix .. 'pause:all', prefix .. 'pause-all-workers') == 0

-- line has what is done with lines: known, if there are any or any may begin, what lines has.
local line = {known = (obstacles.stop or pcall_('EXISTS', prefix .. 'resqued:lined') ~= 0) and lines(prefix), named = {}, fair = {}, late = {}, reach = 512}

-- paused reports whether the queue of an index is, which the fast path may have seen of some.
function line.paused(i)
  return not (obstacles.known and i > empty and i <= obstacles.to) and paused(prefix, names[i])
end

-- page returns up to most payloads of a list from an index on, a few at a time until these are more bytes than there
-- is room for: what one command returns to a script is put together at a cost that grows with the square.
function line.page(key, from, most, room)
  local out, size = {}, 0
  while #out < most and size < room do
    local n = #out
    local part = call('LRANGE', key, fmt('%d', from + n), fmt('%d', from + math.min(n == 0 and 4 or n + math.min(3 * n, 64), most) - 1))
    if #part == 0 then break end
    for _, payload in ipairs(part) do out[#out + 1], size = payload, size + #payload end
  end
  return out
end

-- run has what is done with the end of a run. counted reads the count that stands in front of a failure record, "<key length> <value>
-- <seconds to live, 0 for ever>\n<key>", as resque-retry has it: the value is the number
-- of the last run, from 0. What follows is the record.
local run = {}

function run.counted(text)
  local n, value, ttl, at = match(text, '^(%d+) (%d+) (%d+)\n()')
  local ends = at + tonumber(n)
  local key = sub(text, at, ends - 1)
  return {key = prefix .. key, value = value, ttl = tonumber(ttl), shown = prefix .. 'failure-' .. key}, sub(text, ends)
end

-- keep_count counts the run of a job that runs again after a pause (ms). Until then the
-- record is there that resque-retry's page shows.
function run.keep_count(count, record, pause)
  if count.ttl > 0 then
    call('SET', count.key, count.value, 'EX', count.ttl)
  else
    call('SET', count.key, count.value)
  end
  if pause > 0 and record ~= '' then
    pcall_('SET', count.shown, record, 'EX', math.ceil(pause / 500))
  end
end

-- forget_count ends the count of a job that does not run again. A key that is something
-- else is none of ours.
function run.forget_count(count)
  for _, key in ipairs({count.key, count.shown}) do
    if type(pcall_('GET', key)) == 'string' then pcall_('DEL', key) end
  end
end

function run.unlock(token, lock)
  if lock == '' then return end
  release(lock, me .. token)
  released[#released + 1] = lock
end

for c = nready + 1, nplain do
  local token, lock = ARGV[plainat + c - 1], c <= nlocks and ARGV[locksat + c - 1] or ''
  local had = call('HDEL', inflight, token) == 1
  applied[c] = had and '1' or '0'
  if had then
    processed = processed + 1
    run.unlock(token, lock)
  end
end
for c = nplain + 1, nplain + nother do
  local arg = othersat + 9 * (c - nplain - 1)
  local token, kind, queue, lock = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
  local flags, worker, deaths = ARGV[arg + 4], ARGV[arg + 5], ARGV[arg + 6]
  local failure, pause = ARGV[arg + 7], tonumber(ARGV[arg + 8])
  local record, stuck, count, gap, large, parks, kept = nil, nil, nil, 0, false, false, nil
  if flags ~= '' then
    if find(flags, 'n', 1, true) then count, failure = run.counted(failure) end
  end
  if kind == 'u' then
    -- The payload stands elsewhere. If it is not there any more, the job has failed.
    local n, at = match(failure, '^(%d+)\n()')
    kept, failure = sub(failure, at, at + n - 1), sub(failure, at + n)
    kind = parked.payload(prefix, kept) and 'b' or 'f'
    if kind == 'f' then kept = nil end
  end
  if flags ~= '' then
    if find(flags, 'g', 1, true) then gap, failure = parked.gapped(failure) end
    large, parks = kind == 'f' and find(flags, 'l', 1, true), find(flags, 'x', 1, true)
  end
  local list = find(flags, 'm', 1, true) and parked.listed(prefix, queue) or 'failed'
  local failedkey = prefix .. list
  local back = kind == 'r' or kind == 'b' or kind == 't'
  if back or deaths ~= '0' or gap > 0 or large or parks then
    local raw = call('HGET', inflight, token)
    record = raw and unpack_(raw)
    if (back or gap > 0 or large) and raw and not record then stuck = 'the record of ' .. token .. ' is not one of ours' end
  end
  if kind == 'f' then
    stuck = stuck or lacks(failedkey, 'LLEN', 'RPUSH')
    if not stuck and not len(failedkey) then stuck = failedkey .. ' is no list' end
    if large then stuck = stuck or parked.lacks(prefix) end
  elseif kind == 't' then
    stuck = stuck or lacks(count.key, 'GET', 'SET') or lacksdelay(prefix, queue, record and record.start ~= '-', ms + pause)
    if not stuck and refused(query('GET', count.key)) then stuck = count.key .. ' is no string' end
  elseif back then
    local key = prefix .. 'queue:' .. queue
    stuck = stuck or lacks(key, 'LLEN', 'LPUSH', 'RPUSH') or lacks(prefix .. 'resqued:delayed', 'ZCARD', 'ZADD')
      or lackscompanions(prefix)
    if stuck then -- nothing more is asked
    elseif not len(key) then
      stuck = key .. ' is no list'
    elseif record and record.start ~= '-' and not utyped(key) then
      stuck = key .. ':uniqueue is no set or ' .. key .. ':start_at no list'
    elseif pause > 0 and type(query('ZCARD', prefix .. 'resqued:delayed')) ~= 'number' then
      stuck = prefix .. 'resqued:delayed is no sorted set'
    elseif kept then
      stuck = parked.lacks(prefix)
    end
  end
  if stuck then
    parks = parks and record and not parked.lacks(prefix)
    reasons[#reasons + 1] = stuck
  else
    parks = false
  end
  if stuck and not parks then
    applied[c] = 'x'
  elseif call('HDEL', inflight, token) == 0 then
    applied[c] = '0'
  else
    applied[c] = parks and 'p' or '1'
    if flags ~= '' and find(flags, 'h', 1, true) then drop_held(prefix, proc, token) end
    if flags ~= '' and find(flags, 'k', 1, true) then
      answer(prefix, proc, token, kind == 'd' and 'finished 0 0' or kind == 'f' and 'cancelled 0 0' or 'cancelled 1 0')
    end
    run.unlock(token, lock)
    if flags ~= '' and find(flags, 'c', 1, true) then uncap(prefix, master, queue) end
    if worker ~= '' then call('DEL', prefix .. 'worker:' .. worker) end
    if deaths ~= '0' and record and (not back or find(flags, 's', 1, true)) then
      dead.forget(prefix, queue, record.payload)
    end
    if count and kind ~= 't' then
      run.forget_count(count)
    elseif count then
      -- Before the job itself: a process that finds that must find its count.
      if not parks then run.keep_count(count, failure, pause) end
      failed = failed + 1
    end
    if not back or kind == 't' then processed = processed + 1 end
    if kind == 'f' then failed = failed + 1 end
    if parks then
      local text = kind == 'f' and failure or kind == 't' and ARGV[arg + 7] or kind == 'b' and not find(flags, 'o', 1, true) and lock or ''
      parked.keep(prefix, proc .. '#' .. token, large and 'F' or kind, ms, queue, record.start, record.payload, stuck, gap, text)
    elseif not back then
      if kind == 'f' then
        if large then
          parked.keep(prefix, proc .. '#' .. token, 'l', ms, queue, record.start, record.payload, 'too large for its failure record', 0, '')
        end
        if gap > 0 then failure = parked.whole(failure, gap, record.payload) end
        if list ~= 'failed' then call('SADD', prefix .. 'failed_queues', list) end
        call('RPUSH', failedkey, failure)
      end
    elseif kind == 't' then
      if pause > 0 then setback(prefix, ms) end
      if record and delay(prefix, queue, record.payload, record.start ~= '-', ms + pause, proc .. '#' .. token) == 'd' then
        applied[c] = 'u'
      end
    elseif record and pause > 0 then
      setback(prefix, ms)
      pcall_('SADD', prefix .. 'queues', queue)
      call('ZADD', prefix .. 'resqued:delayed', fmt('%.0f', ms + pause), delayed(proc .. '#' .. token, queue, record.payload, record.start ~= '-'))
    elseif record then
      local start = record.start
      if kept then
        record.payload = parked.payload(prefix, kept)
        parked.drop(prefix, kept)
      end
      if kind == 'b' then
        -- At the head, where a call that knows the jobs behind it does not look.
        forget_seen(prefix, queue)
      elseif start ~= '-' then
        start = fmt('%.0f', math.floor(ms / 1000))
      end
      local payload = kind == 'r' and failure ~= '' and failure or record.payload
      -- It is the next of its line. The lock of a payload that was kept is not that of its reference.
      local other = kept or find(flags, 'o', 1, true)
      if kind == 'b' and line.known and line.known.lead(queue, payload, other and '' or lock) then -- done
      elseif not putback(prefix, queue, payload, start, kind == 'b') then
        applied[c] = 'u'
      end
    end
  end
end
if processed > 0 then pcall_('INCRBY', prefix .. 'stat:processed', processed) end
if failed > 0 then pcall_('INCRBY', prefix .. 'stat:failed', failed) end
local starved = not obstacles.calm and starving(prefix)
if starved then freed(prefix, released, ms) end
if line.known then
  line.known.freed(released, us, alltold and #released == nlocks and obstacles.some)
  if nwant == 0 then line.known.flush() end
end

reply[4] = table.concat(applied)
if nwant == 0 then return reply end

if again then
  call('PERSIST', info) -- see register: a full server must not refuse the rest
  pcall_('HSET', info, repeated, sub(ARGV[4], 36 + #ttl))
end

-- whole reports whether a record that is asked for again still has its lock. If that has
-- expired meanwhile, another process may have had it: its job, which has not begun,
-- goes back to where it came from.
function line.whole(token, raw)
  local record = unpack_(raw)
  if not record or record.lock == '' then return true end
  if pcall_('GET', record.lock) == me .. token then
    pcall_('EXPIRE', record.lock, ttl)
    return true
  end
  local alone = onsuspects == 'o'
  local key = alone and apartkey(prefix, record.queue) or prefix .. 'queue:' .. record.queue
  if not len(key) or alone and lacks(prefix .. 'resqued:suspects', 'SADD') or not alone and record.start ~= '-' and (not utyped or not utyped(key)) then
    return true -- the next beat stops it
  end
  call('HDEL', inflight, token)
  uncap(prefix, record.cap, record.queue)
  if alone then
    set_apart(prefix, record.queue, record.payload, record.start)
  else
    forget_seen(prefix, record.queue)
    if not (line.known and line.known.lead(record.queue, record.payload, record.lock)) then
      putback(prefix, record.queue, record.payload, record.start, true)
    end
  end
  return false
end

-- asked are the wants that nothing was taken for yet, w the next of them.
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

-- nameof returns what a payload's lock is called, or nil if Go has to name it.
local function nameof(queue, payload, byGo)
  local known, class, _, wrapper = false, nil, nil, nil
  if nclasses > 0 then known, class, _, _, wrapper = pcall(envelope, payload) end
  -- Go also reads what is written with escapes.
  if byGo or known and (not class or inGo[class] or inGo[wrapper or ''] or find(class, '\\', 1, true)) then
    return locknames[queue .. '\0' .. redis.sha1hex(payload)]
  end
  local ok, name = pcall(lockname, payload, style)
  return ok and name or redis.sha1hex(payload)
end

-- ask wants the locks of those payloads named that come next.
local function ask(queue, byGo, payloads)
  local size = 0
  for _, payload in ipairs(payloads) do
    if size > 65536 then break end
    if not nameof(queue, payload, byGo) then
      table.insert(reply[8], queue)
      table.insert(reply[8], payload)
      size = size + #payload
    end
  end
end

local taken = {} -- locks that are known to be held

-- take gets a lock for a record of this process, or for so many seconds.
local function take(lock, value, seconds)
  if taken[lock] then return false end
  taken[lock] = true
  if call('SET', lock, value, 'NX', 'EX', seconds or ttl) then return true end
  if held(prefix, lock) then return false end
  call('SET', lock, value, 'EX', seconds or ttl)
  return true
end

-- A suspect whose lock is held asks for it: where others wait for the lock, too, in a line or in their queue, that is
-- never free when the suspect looks again. When it is released it is kept for the suspect, for as long as
-- a process that runs alone may be waited for; then the others go on. The functions for that are defined when they are needed.
function line.requests()
  local r, seconds = {}, '40'

  local function keyof(lock) return prefix .. 'resqued:request:' .. sub(lock, #jobs + 1) end

  -- ask notes that a suspect wants a lock, if no other does.
  function r.ask(lock, payload)
    local id, other = redis.sha1hex(payload), pcall_('GET', keyof(lock))
    if type(other) ~= 'string' or other == id then pcall_('SET', keyof(lock), id, 'EX', seconds) end
  end

  -- kept reports whether a suspect wants a lock, and keeps that for it if it is free.
  function r.kept(lock)
    local id = pcall_('GET', keyof(lock))
    if type(id) ~= 'string' then return false end
    local value = pcall_('GET', lock)
    if type(value) == 'string' and sub(value, 1, 5) == 'line:' then return false end -- a line has the turn, see claim
    if take(lock, 'suspect:' .. id, seconds) then pcall_('DEL', keyof(lock)) end
    return true
  end

  -- claim takes a lock that is kept for a suspect.
  function r.claim(lock, payload, value)
    if pcall_('GET', lock) ~= 'suspect:' .. redis.sha1hex(payload) then return false end
    call('SET', lock, value, 'EX', ttl)
    return true
  end

  -- forget forgets the request of a suspect that has its lock.
  function r.forget(lock, payload)
    if pcall_('GET', keyof(lock)) == redis.sha1hex(payload) then pcall_('DEL', keyof(lock)) end
  end

  return r
end

local bounced, more, budget = 0, 0, bound * 4
local capkey = prefix .. 'resqued:caps:' .. master

local anydeaths = not obstacles.calm and pcall_('EXISTS', deathkey) ~= 0

-- asking returns requests where a suspect waits, or false.
function line.asking()
  if line.asks == nil then
    line.asks = anydeaths and pcall_('EXISTS', prefix .. 'resqued:suspects') == 1 and line.requests()
  end
  return line.asks
end

-- died is dead.of, which costs nothing as long as nothing dies.
local function died(queue, payload)
  if not anydeaths then return 0, 0 end
  return dead.of(prefix, queue, payload)
end

-- behind reports whether a job that may have killed its process has to wait in the line for its lock: the lock is held, or
-- an equal job is set apart. Equal jobs share the blame, and the first that ends well clears the others.
function line.behind(queue, payload, lock)
  if taken[lock] or pcall_('EXISTS', lock) == 1 and held(prefix, lock) then return true end
  local elements = pcall_('LRANGE', apartkey(prefix, queue), '0', '99')
  for _, element in ipairs(elements.err and {} or elements) do
    if suspect(element) == payload then return true end
  end
  return false
end

-- separable reports whether suspects of a queue can be set apart.
function line.separable(queue)
  local set = prefix .. 'resqued:suspects'
  return not anydeaths or len(apartkey(prefix, queue)) and type(pcall_('SCARD', set)) == 'number' and not lacks(set, 'SADD')
end

-- fenced has a fence for the lock that was just taken, or gives that back.
local function fenced(lock)
  if fence == nil then fence = setaside(fencekey, us, nwant) end
  if not fence then call('DEL', lock) end
  return fence
end

-- give grants a job to the next want, and writes its record.
local function give(queue, payload, lock, start, capped, deaths, blame)
  local want, cap, number = asked[w], capped and master or '', '0'
  if lock ~= '' then
    fence = fence + 1
    number = fmt('%d', fence)
  end
  local record = fmt('3 %d %d %d %d %s %d %d %d %s\n', #queue, #want[2], #lock, #cap, number, deaths, blame, ms, start)
    .. queue .. want[2] .. lock .. cap .. payload
  bytes, w = bytes + #payload, w + 1
  call('HSET', inflight, want[1], record)
  reply[#reply + 1] = want[1]
  reply[#reply + 1] = record
  if capped and refused(pcall_('HINCRBY', capkey, queue, 1)) then pcall_('HSET', capkey, queue, 1) end
end

-- reserve takes jobs from one queue of left jobs for at most room wants. The jobs
-- at its head are tried first, locked ones go to the tail; then those which were
-- pushed since the queue was last looked at, where they stand. It returns true if
-- it needs locks to be named.
local function reserve(queue, key, left, room, capped, flags)
  local locked, unique = find(flags, 'l', 1, true), find(flags, 'u', 1, true)
  if locked and fence == false then return false end
  local byGo = find(flags, 'k', 1, true)
  local before = locked and seen(prefix, queue, left, ms, starved)
  local blockedkey, openkey = prefix .. 'resqued:blocked:' .. queue, prefix .. 'resqued:open:' .. queue
  -- Newer jobs are taken where they stand, as holes that leave the list together, from its
  -- nearer end; one by one from a queue that is being healed, which goes by its indexes.
  local together = not unique or not healing(key).at
  local hole, holes = '\0' .. redis.sha1hex(key .. ms), 0
  -- If they are far from both ends, very many locks are open, or the user may not ask for these,
  -- this counts as the first look.
  local released = before and pcall_('SRANDMEMBER', openkey, bounds.open + 1)
  local unread = released and (released.err or #released > bounds.open
    or math.min(before.mark, left - before.mark) > (together and bounds.reach or bounds.single))
  if unread then before = nil end
  local s = before or {count = 0, mark = left, since = ms}
  local newer, unseen = left - s.mark, s.mark - s.count
  -- The locks that were released since jobs were found locked by them. Where all
  -- jobs were looked at, and these are held again, there is nothing to look for.
  local open, nopen = {}, 0
  if before then
    for _, lock in ipairs(released) do
      open[lock] = true
      nopen = nopen + 1
    end
    if s.known and nopen == 0 then unseen = 0 end
  end
  local scan = math.max(1, math.min(bound, budget))
  local looked, put, took, moved, inway = 0, 0, 0, 0, {}
  local unnamed, opened, unnoted, askat = false, false, false, 0

  -- Names that Go has to give may be missing: then nothing may have been popped.
  local direct = not byGo and nclasses == 0
  if not direct or newer > 0 then call('PERSIST', info) end -- as above

  local function lockof(payload)
    local name = nameof(queue, payload, byGo)
    if name then return jobs .. name end
    unnamed = true
  end

  -- shut notes that a lock is held that was open.
  local function shut(lock)
    if not open[lock] then return end
    open[lock], nopen = nil, nopen - 1
    pcall_('SREM', openkey, lock)
    inway[lock] = true
    if s.known and nopen == 0 then unseen = 0 end
  end

  -- out takes the job with an index out of the queue, and returns its start time.
  local function out(index, popped, head, payload)
    local at = index - holes
    if popped then -- it is out
    elseif head or not together then
      removeat(key, at, left)
    else
      call('LSET', key, index, hole)
      holes = holes + 1
    end
    return unique and forget_member(key, at, payload, left) or '-'
  end

  -- try looks at the job with an index. It returns true if the job was taken, or set
  -- apart, false if it is locked, nil if its lock has to be named first or there is no
  -- fence for it: then it stays where it is. One at the head
  -- that is locked goes to the tail.
  local function try(index, head)
    local popped = head and direct
    local payload, start, lock = nil, nil, ''
    if popped then payload = call('LPOP', key) else payload = call('LINDEX', key, index) end
    if head then unseen = unseen - 1 else newer = newer - 1 end
    local deaths, blame = 0, 0
    if anydeaths then deaths, blame = died(queue, payload) end
    if blame > 0 and onsuspects == 'a' then
      start = out(index, popped, head, payload)
      set_apart(prefix, queue, payload, start)
      left, took, moved = left - 1, took + 1, moved + 1
      return true
    end
    if locked then
      lock = lockof(payload)
      if not lock then return nil end
      local got = take(lock, me .. asked[w][1])
      if nopen > 0 then shut(lock) end
      if not got then
        inway[lock] = true
        looked = looked + 1
        if head then
          if not popped then call('LPOP', key) end
          call('RPUSH', key, payload)
          if unique then rotated(key, payload) end
          put = put + 1
        end
        return false
      elseif not fenced(lock) then
        if popped then call('LPUSH', key, payload) end
        return nil
      end
    end
    start = out(index, popped, head, payload)
    give(queue, payload, lock, start, capped, deaths, blame)
    left, room, took = left - 1, room - 1, took + 1
    return true
  end

  local function going()
    return room > 0 and w <= #asked and bytes < maxbytes and not unnamed and (fence ~= false or not locked)
  end

  while unseen > 0 and looked + moved < scan and going() do
    if try(0, true) == nil then unseen = unseen + 1 end
  end
  if newer > 0 and (unseen <= 0 or put > 0) then
    local index, n, asked_ = left - put - newer, 0, unnamed
    while newer > 0 and n + moved < scan and going() do
      local got = try(index, false)
      if got == nil then
        newer = newer + 1
      elseif not got then
        index, n = index + 1, n + 1
      elseif together then
        index = index + 1
      end
    end
    if holes > 0 then
      call('LREM', key, index < newer + put + holes and holes or -holes, hole)
      index, holes = index - holes, 0
    end
    -- Others go to the tail behind these, where they would not be found any more.
    while newer > 0 and put > 0 and n < scan and not unnamed do
      local lock = lockof(call('LINDEX', key, index))
      if lock then
        if taken[lock] or held(prefix, lock) then
          inway[lock] = true
        else
          opened, open[lock] = true, nil -- the round passed by this one
          unnoted = unnoted or refused(pcall_('SADD', openkey, lock)) or refused(pcall_('PEXPIRE', openkey, 2 * patience))
        end
        index, n, newer, looked = index + 1, n + 1, newer - 1, looked + 1
      end
    end
    if unnamed and not asked_ then askat = index end
  end

  if locked and fence == false then
    -- What was known of the queue counts no more where some were put back.
    if before or looked + moved > 0 then forget_seen(prefix, queue) end
    bounced, budget = bounced + put, budget - looked - moved
    if moved > 0 then reply[9] = reply[9] + apart(prefix, queue) end
    return false
  elseif unnamed then
    -- A caller that has asked before lets other queues have their turn.
    ask(queue, byGo, line.page(key, askat, scan, maxbytes))
  elseif (unseen > 0 or newer > 0) and w <= #asked and room > 0 then
    more = 1
  end
  if locked and left == 0 then
    if before or unread or looked > 0 then forget_seen(prefix, queue) end
  elseif unnoted or unread and took > 0 and looked == 0 or newer > 0 and put > 0 then
    forget_seen(prefix, queue) -- jobs that were not looked at stand among the others
  elseif looked > 0 or before and took > 0 then
    s.mark = left - newer
    if unseen <= 0 then
      -- In a whole round for what is open there was no job of the rest.
      for lock in pairs(s.known and open or {}) do
        pcall_('SREM', openkey, lock)
        nopen = nopen - 1
      end
      s.known, s.count = true, (nopen > 0 or opened) and 0 or s.mark
    else
      s.count = s.known and opened and 0 or math.min(s.count + looked, s.mark)
    end
    if not before then call('UNLINK', blockedkey, openkey) end
    note_seen(prefix, queue, s, inway)
    starved = true
  end
  bounced = bounced + put
  budget = budget - looked - moved
  if moved > 0 then reply[9] = reply[9] + apart(prefix, queue) end
  return unnamed
end

-- serve gives the jobs whose turn has come in the lines of a queue. It returns the room that is left.
function line.serve(queue, room, capped)
  local ready, moved, requests = prefix .. 'resqued:ready:' .. queue, 0, line.asking()
  while room > 0 and w <= #asked and bytes < maxbytes and fence ~= false do
    if moved >= bound then -- equal jobs are suspects together, and a line may have very many
      more = 1
      break
    end
    local most = math.min(room, #asked - w + 1, 64)
    local next, behind = pcall_('ZPOPMIN', ready, most), false
    for i = 1, next.err and 0 or #next, 2 do
      local name, turn = next[i], next[i + 1]
      local key, lock = line.known.list(queue, name), jobs .. name
      local full = bytes >= maxbytes or fence == false
      local waiting = full and {} or pcall_('LRANGE', key, 0, 1)
      local payload, gone = waiting[1], false
      local deaths, blame = 0, 0
      if payload and anydeaths then deaths, blame = died(queue, payload) end
      if full then
        call('ZADD', ready, turn, name)
      elseif not payload then -- others have removed them
      elseif blame > 0 and onsuspects == 'a' and line.behind(queue, payload, lock) then -- ready when the suspect has run
      elseif blame > 0 and onsuspects == 'a' then
        set_apart(prefix, queue, payload, '-')
        call('ZADD', ready, turn, name) -- its lock is free still
        gone, behind, moved = true, true, moved + 1
      elseif requests and requests.kept(lock) then -- a suspect has the turn
      elseif not take(lock, me .. asked[w][1]) and not line.known.claim(queue, name, me .. asked[w][1], ttl) then
        table.insert(line.late, {queue, name}) -- the holder of its lock says when it is free
      elseif not fenced(lock) then
        call('ZADD', ready, turn, name)
      else
        table.insert(reply[10], asked[w][1])
        give(queue, payload, lock, '-', capped, deaths, blame)
        room, gone = room - 1, true
      end
      if gone then
        call('LPOP', key)
        line.known.add(queue, -1)
      end
      if not full and not payload or gone and not waiting[2] then line.known.finish(queue, name) end
    end
    if next.err or #next < 2 * most and not behind then break end
  end
  if moved > 0 then reply[9] = reply[9] + apart(prefix, queue) end
  return room
end

-- append has payloads wait at the ends of lines for locks.
function line.append(queue, key, names, ends)
  for _, name in ipairs(names) do
    local list = line.known.list(queue, name)
    local n = pcall_('RPUSH', list, unpack(ends[name]))
    if type(n) == 'number' then
      if n == #ends[name] then line.known.begin(queue, name, ms) end
      line.known.add(queue, #ends[name])
    else
      reasons[#reasons + 1] = list .. ' is no list; its jobs wait at the tail of ' .. key
      call('RPUSH', key, unpack(ends[name]))
    end
  end
end

-- intake takes jobs from the head of a queue of left jobs: those whose lock is free and has no
-- line are given, the others go to the end of the line for theirs. It returns true if it needs
-- locks to be named.
function line.intake(queue, key, left, room, capped, flags)
  local byGo = find(flags, 'k', 1, true)
  if not line.known then line.known = lines(prefix) end
  local lined = line.known.count(queue)
  -- Beyond the bound as without lines, until half of it is left: each change has the queue looked through.
  local counted = starved and lined < line.known.bound and pcall_('HEXISTS', counters, queue) == 1
  if lined >= line.known.bound or counted and lined >= line.known.bound / 2 then
    return reserve(queue, key, left, room, capped, flags)
  end
  call('PERSIST', info) -- as above
  if counted then forget_seen(prefix, queue) end
  local scan = math.max(1, math.min(bound, budget))
  local ends, names, unnamed, gone, looked, moved = {}, {}, false, 0, 0, 0 -- ends: name → payloads for its line
  local requests = line.asking()

  local function going()
    return gone < left and looked + moved < scan and room > 0 and w <= #asked and bytes < maxbytes and fence ~= false and not unnamed
  end

  local chunk = 4
  while going() do
    local waiting, from, size = call('LRANGE', key, gone, gone + chunk - 1), gone, 0
    if #waiting == 0 then break end
    for _, payload in ipairs(waiting) do
      if not going() then break end
      local deaths, blame = 0, 0
      if anydeaths then deaths, blame = died(queue, payload) end
      local name = nameof(queue, payload, byGo)
      local lock, mates = jobs .. (name or ''), name and ends[name]
      local blamed = blame > 0 and onsuspects == 'a'
      if blamed and not (name and (mates or line.behind(queue, payload, lock))) then
        set_apart(prefix, queue, payload, '-')
        moved = moved + 1
      elseif not name then
        unnamed = true
        break
      elseif mates or blamed or lined > 0 and (len(line.known.list(queue, name)) or 0) > 0 or requests and requests.kept(lock)
        or not take(lock, me .. asked[w][1]) then
        if not mates then
          mates = {}
          ends[name], names[#names + 1] = mates, name
        end
        mates[#mates + 1] = payload
        looked = looked + 1
      elseif fenced(lock) then
        give(queue, payload, lock, '-', capped, deaths, blame)
        room = room - 1
      else
        break
      end
      gone, size = gone + 1, size + #payload
    end
    if size > 8192 * (gone - from) then chunk = 4 else chunk = math.min(4 * chunk, bound) end
  end
  line.append(queue, key, names, ends)
  if gone > 0 then call('LTRIM', key, gone, -1) end
  bounced, budget = bounced + looked, budget - looked - moved
  if moved > 0 then reply[9] = reply[9] + apart(prefix, queue) end
  if unnamed then
    ask(queue, byGo, line.page(key, 0, scan, maxbytes))
  elseif gone < left and room > 0 and w <= #asked and fence ~= false then
    more = 1
  end
  return unnamed
end

-- tenant returns whose a payload is, nil if Go has to say so. index is that of the argument that
-- names the tenant, nil for any other rule. What is written with escapes, or any other way than Ruby and Go
-- write it, is for Go.
function line.tenant(queue, payload, index)
  -- A class of characters is looked for where the tenant stands; of a megabyte that would take 20 ms.
  local head = #payload > 2048 and sub(payload, 1, 2048) or payload
  if index and not find(payload, '\\', 1, true) and not find(head, '[\128-\255%c]') then
    local at = match(head, '^{"class":"[^"]*","args":%[()')
    if at and find(payload, '"args"', at, true) then at = nil end
    for i = 0, at and index or -1 do
      local text, behind = match(head, '^"([^"]*)"()[,%]]', at)
      if not text then text, behind = match(head, '^(%-?%d+)()[,%]]', at) end
      if not text or i < index and byte(head, behind) ~= 44 then break end
      if i == index then return #text <= 512 and text or nil end
      at = behind + 1
    end
  end
  return line.named[queue .. '\0' .. redis.sha1hex(payload)]
end

-- rule returns the index for tenant, and a function that returns what one job of a place adds to its turn.
function line.rule(queue)
  local index, rest, at = match(line.fair[queue] or '- 1', '^(%S+) (%d+)()')
  local weights, text = {}, line.fair[queue] or ''
  while true do
    local weight, n, from = match(text, '^ (%d+) (%d+) ()', at)
    if not weight then break end
    at = from + tonumber(n)
    weights['=' .. sub(text, from, at - 1)] = tonumber(weight)
  end
  return tonumber(index), function(place)
    return place == '!' and 0 or 1 / (weights[place] or tonumber(rest))
  end
end

-- turns takes jobs of a queue of left jobs in turns of its tenants. If adds is set jobs of the queue's head go
-- to the lines of their tenants before, those of this call that are taken at once excepted. A job whose lock is held goes to
-- the line for that, which counts as a turn: so the jobs in such lines, which go first, are no more
-- than their tenants' share. It returns the room that is left, whether it needs jobs to be named, whether no
-- tenant has a job any more, and how many jobs are left in the queue.
function line.turns(queue, key, left, room, capped, flags, adds)
  if not line.known then line.known = lines(prefix) end
  local l, byGo, locked = line.known, find(flags, 'k', 1, true), find(flags, 'l', 1, true)
  local index, cost = line.rule(queue)
  local scan = math.max(1, math.min(bound, budget))
  call('PERSIST', info) -- as above
  if adds and starved and pcall_('HEXISTS', counters, queue) == 1 then forget_seen(prefix, queue) end

  -- fresh: tenant → payloads of the queue's head, places: the tenants in the order in which they come
  local fresh, places, gone, size, unnamed = {}, {}, 0, 0, false
  local most = adds and math.min(left, line.reach, l.bound - l.count(queue)) or 0
  while gone < most and size < 262144 and not unnamed do
    local payloads = call('LRANGE', key, gone, math.min(gone == 0 and 4 or gone + math.min(3 * gone, 64), most) - 1)
    if #payloads == 0 then break end
    for _, payload in ipairs(payloads) do
      local place = line.tenant(queue, payload, index)
      if not place then
        unnamed = true
        break
      end
      place = '=' .. place
      if not fresh[place] then fresh[place], places[#places + 1] = {}, place end
      table.insert(fresh[place], payload)
      gone, size = gone + 1, size + #payload
    end
  end
  if unnamed then line.ask(queue, line.page(key, gone, line.reach, 262144), index, byGo) end

  -- Newcomers begin with the turn that comes next. Where no tenant waits nothing of this is kept.
  local set, next, wide = l.turns(queue), {}, math.max(64, math.min(room, 512))
  local low = l.kept('ZRANGEBYSCORE', set, '-1', '+inf', 'WITHSCORES', 'LIMIT', '0', '2')
  local waits = not low.err and #low > 0
  if waits then
    local first = low[1] == '!' and low[4] or low[1] ~= '!' and low[2] or '0'
    local args = {}
    for i, place in ipairs(places) do args[2 * i - 1], args[2 * i] = first, place end
    if #args > 0 then call('ZADD', set, 'NX', unpack(args)) end
    local part = call('ZRANGE', set, '0', fmt('%d', wide), 'WITHSCORES')
    for i = 1, #part, 2 do next[#next + 1] = {place = part[i], turn = tonumber(part[i + 1]), there = 0} end
  else
    for i, place in ipairs(places) do next[i] = {place = place, turn = 0, there = 0, read = {}} end
  end
  -- Where there are more tenants their turns come after edge, the last one that is known.
  local all, at, edge = #next <= wide or not waits, 1, next[1] and next[#next].turn
  local each = math.max(1, math.ceil(room / math.max(1, #next)))

  -- first returns the next job of a place: from its line, then from the head of the queue. How large they are
  -- is not known until they were read: a few at a time, so that no more is read than there is room for.
  local met, weighed = 0, 0
  local function first(t)
    if not t.read or t.there == #t.read and t.more then
      local from, n = t.there, each * (t.read and 4 or 1)
      n = math.min(n, met == 0 and 4 or math.max(1, math.min(64, math.floor(262144 * met / (weighed + 1)))))
      local part = pcall_('LRANGE', l.tenant(queue, t.place), fmt('%d', from), fmt('%d', from + n))
      if part.err then part = {} end
      t.read, t.more = t.read or {}, #part > n
      for i = 1, math.min(n, #part) do t.read[from + i] = part[i] end
      for i = 1, #part do met, weighed = met + 1, weighed + #part[i] end
    end
    if t.there < #t.read then return t.read[t.there + 1], false end
    local payloads = fresh[t.place]
    return payloads and payloads[(t.used or 0) + 1], true
  end

  local ends, names, left_, moved, looked, over = {}, {}, {}, 0, 0, {}
  local lined, requests = locked and pcall_('EXISTS', prefix .. 'resqued:lines:' .. queue) ~= 0, line.asking()
  while at <= #next and (all or next[at].turn <= edge) and room > 0 and w <= #asked and bytes < maxbytes
    and (fence ~= false or not locked) and looked + moved < scan do
    local t = next[at]
    local payload, new = first(t)
    local step, name, lock = cost(t.place), nil, ''
    if payload and locked then
      name = nameof(queue, payload, byGo)
      if not name then
        unnamed = true
        line.ask(queue, line.heads(next, at, fresh, first), index, byGo)
        break
      end
      lock = jobs .. name
    end
    local deaths, blame = 0, 0
    if payload and anydeaths then deaths, blame = died(queue, payload) end
    if not payload then
      over[#over + 1] = t.place
      at = at + 1
    elseif blame > 0 and onsuspects == 'a' and not (name and line.behind(queue, payload, lock)) then
      set_apart(prefix, queue, payload, '-')
      moved, step = moved + 1, 0
    elseif not name then
      give(queue, payload, '', '-', capped, deaths, blame)
      room = room - 1
    elseif ends[name] or blame > 0 and onsuspects == 'a' or lined and (len(l.list(queue, name)) or 0) > 0 or requests and requests.kept(lock)
      or not take(lock, me .. asked[w][1]) then
      if not ends[name] then ends[name], names[#names + 1] = {}, name end
      table.insert(ends[name], payload)
      looked = looked + 1
    elseif fenced(lock) then
      give(queue, payload, lock, '-', capped, deaths, blame)
      room = room - 1
    else
      break
    end
    if payload then
      if new then t.used = (t.used or 0) + 1 else t.there = t.there + 1 end
      if step > 0 then
        -- Behind all that have this turn, too.
        t.turn, t.moved = t.turn + step, true
        local i = at
        while next[i + 1] and next[i + 1].turn <= t.turn do
          next[i] = next[i + 1]
          i = i + 1
        end
        next[i] = t
      end
    end
  end

  -- What was taken leaves its line; what no thread has taken goes to the ends of those.
  local taken, added, scores, drained = 0, 0, {}, at > #next and all
  for _, t in ipairs(next) do
    if t.there > 0 then
      call('LTRIM', l.tenant(queue, t.place), fmt('%d', t.there), '-1')
      taken = taken + t.there
    end
    left_[t.place] = t.used
    if t.moved then
      scores[#scores + 1] = fmt('%.17g', t.turn)
      scores[#scores + 1] = t.place
    end
  end
  for _, place in ipairs(places) do
    local payloads, from = fresh[place], (left_[place] or 0) + 1
    if from <= #payloads then
      local list = l.tenant(queue, place)
      if not waits and not left_[place] then
        scores[#scores + 1] = '0'
        scores[#scores + 1] = place
      end
      if type(pcall_('RPUSH', list, unpack(payloads, from))) == 'number' then
        added = added + #payloads - from + 1
      else
        reasons[#reasons + 1] = list .. ' is no list; its jobs wait at the tail of ' .. key
        call('RPUSH', key, unpack(payloads, from))
      end
    end
  end
  if gone > 0 then call('LTRIM', key, fmt('%d', gone), '-1') end
  l.add(queue, added - taken, added - taken)
  line.append(queue, key, names, ends)
  for from = 1, (waits or added > 0) and #scores or 0, 1000 do l.kept('ZADD', set, unpack(scores, from, math.min(from + 999, #scores))) end
  if waits and #over > 0 then l.leave(queue, over) end
  bounced, budget = bounced + looked, budget - looked - moved
  if moved > 0 then reply[9] = reply[9] + apart(prefix, queue) end
  if not unnamed and (not drained and (fence ~= false or not locked) or gone < left and most > 0) and room > 0 and w <= #asked then more = 1 end
  return room, unnamed, drained, left - gone
end

-- fairly takes jobs in turns of tenants, where a queue of left jobs has any, and returns the room that is left. It sets
-- what is known then: left; unnamed, if it needs jobs to be named; enough, if nothing is to be taken from
-- the queue itself.
function line.fairly(queue, key, left, room, cap, flags, unique)
  local adds, drained = find(flags, 'f', 1, true) and not unique and line.begins(queue, flags), true
  line.left, line.unnamed, line.enough = left, false, false
  if not (adds and left > 0 or line.known and pcall_('EXISTS', line.known.turns(queue)) == 1) or paused(prefix, queue) then return room end
  room = room or line.roomin(queue, cap)
  if room > 0 and w <= #asked and bytes < maxbytes and (fence ~= false or not find(flags, 'l', 1, true)) then
    room, line.unnamed, drained, line.left = line.turns(queue, key, left, room, cap > 0, flags, adds)
  end
  -- Beyond the bound what is left is taken as from any other queue, unless tenants wait.
  line.enough = line.unnamed or not drained or adds and line.known and line.known.count(queue) < line.known.bound
  return room
end

-- heads returns the next jobs of places, as far as they are known.
function line.heads(next, at, fresh, first)
  local out, size = {}, 0
  local function add(payload) out[#out + 1], size = payload, size + #payload end
  for i = at, #next do
    local t = next[i]
    first(t)
    for k = t.there + 1, #t.read do add(t.read[k]) end
    for k = (t.used or 0) + 1, fresh[t.place] and #fresh[t.place] or 0 do add(fresh[t.place][k]) end
    if size > 262144 then break end -- no more is asked for at a time
  end
  return out
end

-- ask wants whatever Go has to say of those payloads that come next.
function line.ask(queue, payloads, index, byGo)
  local size = 0
  for _, payload in ipairs(payloads) do
    if size > 65536 then break end
    if not line.tenant(queue, payload, index) or not nameof(queue, payload, byGo) then
      table.insert(reply[8], queue)
      table.insert(reply[8], payload)
      size = size + #payload
    end
  end
end

-- begins reports whether locked jobs of a queue are to wait in lines. Workers of others would not see them there.
function line.begins(queue, flags)
  if not find(flags, 'q', 1, true) then return false end
  local others = prefix .. 'resqued:strangers'
  if line.shared == nil then line.shared = pcall_('EXISTS', others) == 1 end
  return not line.shared or pcall_('SISMEMBER', others, queue) == 0 and pcall_('SISMEMBER', others, '*') == 0
end

-- suspects takes suspects of one queue, whose own keys are not touched. The
-- locked ones go to the tail.
function line.suspects(queue, room, capped, flags)
  local key, left = apartkey(prefix, queue), apart(prefix, queue)
  local scan, byGo, unnamed = math.min(left, bound, budget), find(flags, 'k', 1, true), false
  local requests = line.requests()
  while scan > 0 and room > 0 and w <= #asked and bytes < maxbytes do
    local element = call('LINDEX', key, 0)
    local payload, start = suspect(element)
    local lock = ''
    if find(flags, 'l', 1, true) then
      local name = nameof(queue, payload, byGo)
      if not name then
        local next = line.page(key, 0, bound, maxbytes)
        for i, other in ipairs(next) do next[i] = suspect(other) end
        ask(queue, byGo, next)
        unnamed = true
        break
      end
      lock = jobs .. name
    end
    scan, budget = scan - 1, budget - 1
    local value = me .. asked[w][1]
    if lock ~= '' and not take(lock, value) and not requests.claim(lock, payload, value) then
      if find(flags, 'q', 1, true) then requests.ask(lock, payload) end
      call('LPOP', key)
      call('RPUSH', key, element)
    elseif lock ~= '' and not fenced(lock) then
      break
    else
      call('LPOP', key)
      give(queue, payload, lock, start, capped, died(queue, payload))
      if lock ~= '' and find(flags, 'q', 1, true) then requests.forget(lock, payload) end
      room = room - 1
    end
  end
  reply[9] = reply[9] + apart(prefix, queue)
  return unnamed
end

-- roomin returns how many threads a queue may still occupy.
function line.roomin(queue, cap)
  if cap == 0 then return #asked end
  local n = tonumber(pcall_('HGET', capkey, queue) or 0)
  return cap - (n and n > 0 and n < 2 ^ 53 and math.floor(n) or 0)
end

if onsuspects == 'o' then call('PERSIST', info) end -- as above
if not obstacles.calm and w <= #asked and pausing(prefix) then nqueue = 0 end
local relock = not obstacles.calm and w <= #asked and pcall_('ZCARD', prefix .. 'resqued:relock')
relock = type(relock) == 'number' and relock > 0

for i = nextqueue, nqueue do
  if (w > #asked or bytes >= maxbytes) and onsuspects ~= 'o' then
    if w <= #asked then more = 1 end
    break
  end
  local queue, cap, flags = names[i], match(modes[i], '^(%d+)(%a*)$')
  cap = tonumber(cap)
  local key = prefix .. 'queue:' .. queue
  local unique = find(flags, 'u', 1, true)
  local left = len(key)
  if relock and find(flags, '[lf]') then
    -- A process may hold a lock that has expired: the queue waits for a beat.
  elseif onsuspects == 'o' then
    if not paused(prefix, queue) and line.suspects(queue, line.roomin(queue, cap), cap > 0, flags) and nnames == 0 then break end
  elseif not left or unique and not utyped(key) or onsuspects == 'a' and not line.separable(queue) then
    table.insert(reply[6], queue)
  else
    if unique and find(flags, 's', 1, true) and not instep(key, left) then
      table.insert(reply[7], queue)
      left = 0
    elseif unique then
      local n, healed = tend(key, left)
      if n < left then forget_seen(prefix, queue) end -- what was dropped stood anywhere
      left = n
      if healed then table.insert(reply[7], queue) end
    end
    local locked, room = find(flags, 'l', 1, true), nil
    if line.known and not relock and not line.paused(i) then
      room = line.serve(queue, line.roomin(queue, cap), cap > 0)
    end
    room = line.fairly(queue, key, left, room, cap, flags, unique)
    if line.unnamed and nnames == 0 then break end
    left = line.left
    if left == 0 then
      if starved and pcall_('HEXISTS', prefix .. 'locket:queue_lock_counters', queue) == 1 then
        forget_seen(prefix, queue)
      end
    elseif room and room <= 0 or w > #asked then -- lines have taken it
    elseif not line.enough and not line.paused(i) then
      room = room or line.roomin(queue, cap)
      local from = locked and not unique and line.begins(queue, flags) and line.intake or reserve
      if room > 0 and w <= #asked and from(queue, key, left, room, cap > 0, flags) and nnames == 0 then break end
    end
  end
end
if fence == false then
  reasons[#reasons + 1] = fencekey .. ' holds no number that fencing tokens could go on from'
end
if line.known then line.known.flush() end
-- A thread waits, and jobs of other queues have had these locks.
for _, late in ipairs(w <= #asked and line.late or {}) do line.known.ask(late[1], late[2]) end
reply[2], reply[3] = bounced, more
return reply
