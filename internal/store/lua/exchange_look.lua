-- exchange_look looks whether anything keeps jobs from being taken on the fast path: a pause, a line, a
-- job that may have killed its process, a lock that has expired under its holder. A part of exchange; see exchange_fast.
--
-- DEFINES  reply, fields, w, bytes, names, modes, nextqueue: how far the call has come; obstacles: what was found;
--          plain.read(n): no result; plain.first(n), plain.further(n): whether the fast path goes on
-- NEEDS    all parts before it
-- COST     1 command per 16 queues, nearly always; 15 that hand the lock of a job that has ended to the next of its line

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

local plain = {}

-- read reads the names and modes of the queues up to an index.
function plain.read(n)
  for i = nread + 1, n do
    local a, b, c, d, m = byte(list, readat, readat + 4)
    local from = readat + 5 + m
    if m > 0 then lastmode = sub(list, readat + 5, from - 1) end
    readat = from + ((a * 256 + b) * 256 + c) * 256 + d
    names[i], modes[i] = sub(list, from, readat - 1), lastmode
  end
  nread = n
end

-- handed reports whether all that waits stands in lines, and none may be served but that for the lock of the job that
-- has just ended: l is the length of the name of its queue, and the queue.
function plain.handed(lock, n)
  local queues = pcall_('HGET', prefix .. 'resqued:awaited', sub(lock, #jobs + 1))
  local l, queue = match(type(queues) == 'string' and queues or '', '^(%d+) (.*)$')
  local at, keys = nil, {}
  for i = 1, queue and tonumber(l) == #queue and n or 0 do -- it is awaited by one queue
    if names[i] == queue and (modes[i] == '0lq' or modes[i] == '0lkq') then at = i end
    keys[#keys + 1] = prefix .. 'resqued:ready:' .. names[i]
    keys[#keys + 1] = prefix .. 'resqued:turns:' .. names[i]
    if i > empty then keys[#keys + 1] = prefix .. 'queue:' .. names[i] end
  end
  keys[#keys + 1] = at and prefix .. 'pause:queue:' .. queue or nil
  return at and pcall_('EXISTS', unpack(keys)) == 0, l, queue
end

-- handover begins the next job of the line for the lock of the job that has just ended, and returns the answer of
-- the call. If it may not it returns nil.
function plain.handover(n, met)
  if met ~= 1 or n ~= nqueue then return nil end -- with no wants, no queues
  local lock = ARGV[locksat]
  local may_, l, queue = plain.handed(lock, n)
  if not may_ then return nil end
  local waits, lined = prefix .. 'resqued:line:' .. l .. ':' .. queue .. ':' .. sub(lock, #jobs + 1), prefix .. 'resqued:lined'
  local waiting = pcall_('LRANGE', waits, '0', '1')
  fence = waiting[2] and setaside(fencekey, us, nwant) or nil -- the last of a line ends it
  local left = fence and pcall_('HINCRBY', lined, queue, '-1')
  if type(left) ~= 'number' then return nil end
  if left <= 0 then
    if left < 0 then call('HDEL', lined, queue) else call('HINCRBY', lined, queue, '1') end -- that there are lines is not known
    return nil
  end
  local t, m, rest = byte(wants, wantat, wantat + 2)
  local from = wantat + 3 + t
  local token, worker = sub(wants, wantat + 3, from - 1), lead .. sub(wants, from, from + m * 256 + rest - 1) .. tail
  local record = fmt('3 %d %d %d 0 %d 0 0 %d -\n', #queue, #worker, #lock, fence + 1, ms) .. queue .. worker .. lock .. waiting[1]
  call('SET', lock, me .. token, 'EX', ttl)
  call('HSET', inflight, token, record)
  call('LPOP', waits)
  return {reply[1], 2, record}
end

-- beside reports whether the lines that there are concern neither the first n queues nor the locks that are
-- released. If they do exchange_slow need not ask again: whether lines are all that there is, and who waits for
-- the locks.
function plain.beside(n, met)
  local waited, few = {}, nlocks <= 1000
  for c = 1, few and nlocks or 0 do waited[c] = sub(ARGV[locksat + c - 1], #jobs + 1) end
  local lined = n > 0 and pcall_('HMGET', prefix .. 'resqued:lined', unpack(names, 1, n)) or {}
  local some = few and nlocks > 0 and pcall_('HMGET', prefix .. 'resqued:awaited', unpack(waited)) or {}
  local clear = few and not lined.err and not some.err
  for i = 1, clear and n or 0 do clear = clear and not lined[i] end
  for c = 1, clear and nlocks or 0 do clear = clear and not some[c] end
  if clear then
    obstacles[6], obstacles.lines = counters, true
    return pcall_('EXISTS', unpack(obstacles)) == 0
  end
  obstacles.stop, obstacles.known, obstacles.to = true, met == 1, n
  obstacles.some = not some.err and nlocks > 0 and some or nil
  return false
end

-- first looks for what is in the way of the first n queues, and reports whether that is nothing. The first of them may
-- be known to have been empty: then one command shows whether they still are, and nothing else is asked of them. Where it has
-- handed the lock over it returns the answer of the call, too.
function plain.first(n)
  if empty > n then empty = n end
  for i = 1, empty do obstacles[6 + i] = prefix .. 'queue:' .. names[i] end
  for i = empty + 1, n do obstacles[6 + i] = prefix .. 'pause:queue:' .. names[i] end
  local met = pcall_('EXISTS', unpack(obstacles))
  local clear = met == 0
  if released.kept then
    local answer = plain.handover(n, met)
    if answer then return false, answer end
    call('DEL', ARGV[locksat])
    released.kept = false
  end
  if not clear and pcall_('EXISTS', prefix .. 'resqued:lined') == 1 then clear = plain.beside(n, met) end
  local dead = not clear and not obstacles.stop and pcall_('EXISTS', deathkey, prefix .. 'resqued:suspects') or 0
  if type(dead) == 'number' and dead > 0 then
    obstacles[1], obstacles.deadly, obstacles.apart = counters, true, dead == 2
    clear = pcall_('EXISTS', unpack(obstacles)) == 0
  end
  if clear then
    nextqueue = empty + 1
  elseif empty > 0 and not obstacles.stop then
    for i = 1, empty do obstacles[6 + i] = prefix .. 'pause:queue:' .. names[i] end
    clear = pcall_('EXISTS', unpack(obstacles)) == 0
  end
  return clear
end

-- further does the same for the queues from nextqueue to n. Where there are many most are empty, which one command
-- shows of several.
function plain.further(n)
  local keys = {}
  local lined = obstacles.lines and nextqueue <= n and pcall_('HMGET', prefix .. 'resqued:lined', unpack(names, nextqueue, n)) or {}
  if lined.err then return false end
  for i = 1, n - nextqueue + 1 do
    if lined[i] then return false end -- some of these have lines
  end
  for i = nextqueue, n do keys[i - nextqueue + 1] = prefix .. 'queue:' .. names[i] end
  if pcall_('EXISTS', unpack(keys)) == 0 then
    nextqueue = n + 1
    return true
  end
  for i = nextqueue, n do keys[i - nextqueue + 1] = prefix .. 'pause:queue:' .. names[i] end
  return pcall_('EXISTS', unpack(keys)) == 0
end
