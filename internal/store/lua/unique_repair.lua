-- unique_repair makes a unique queue's companions match it, in one step: the list is the truth, and of equal
-- jobs all but the first are dropped.
--
-- KEYS[1]   queue:<q>
-- ARGV[1]   prefix
-- ARGV[2]   how: r always; d unasked: only if the lengths differ, if it takes the server at most
--           about 50 ms, and not within twenty times as long after the last one; e remove the
--           companions if nothing waits, a remove them: the queue is no longer unique
-- RETURNS   {0 nothing, 1 done, 2 too long for d; jobs, members in, out, duplicates dropped, times
--           in, out, {the first few of the dropped}};
--           error RESQUEDTYPE or NOPERM, or of a full server that refuses the first write:
--           nothing was done
-- COST      2 commands per job, 2 more per duplicate. A job of 40 bytes takes about 1 us, one of
--           2 KB about 9 us; O(n)

local key, how = KEYS[1], ARGV[2]
local set, starts, queue = key .. ':uniqueue', key .. ':start_at', sub(KEYS[1], #ARGV[1] + 7)
local fresh = ARGV[1] .. 'resqued:healing:' .. queue
local state = ARGV[1] .. 'resqued:heal:' .. queue -- until when no master repairs the queue again
local wrong = inway(queueobstacle(key, how == 'r' or how == 'd'))
if wrong then return wrong end
local n = len(key)
local nothing = {0, n, 0, 0, 0, 0, 0, {}}
if how == 'a' or how == 'e' and n == 0 then
  call('UNLINK', set, starts, fresh, state)
  nothing[1] = 1
  return nothing
elseif how == 'e' then
  return nothing
end

-- The cost of a job grows with its bytes, estimated from the first, middle and last ones.
local first, cost, ms, bytes = call('LINDEX', key, 0), 0, now(), 0
if how == 'd' then
  if instep(key, n) then return nothing end
  for _, from in ipairs({0, math.floor(n / 2), -10}) do
    local few = call('LRANGE', key, from, from + 9)
    bytes = 0
    for _, payload in ipairs(few) do bytes = bytes + #payload end
    cost = math.max(cost, n * (200 + bytes / math.max(#few, 1)))
  end
  if cost > 10000000 then
    nothing[1] = 2
    return nothing
  end
  local rest = tonumber(pcall_('HGET', state, 'rest') or 0) or 0
  if ms < rest and rest - ms < 10000 then return nothing end
end

local times, page = call('LLEN', starts), 4
local hole, holes, from, dropped = '\0' .. redis.sha1hex(key .. ms), 0, 0, {}
local added = n > 0 and call('SADD', set, first) or 0 -- the first write, which a full server refuses
call('UNLINK', fresh, state)
while from < n do
  local some = call('LRANGE', key, from, from + page - 1)
  added, bytes = added + call('SADD', set, unpack(some)), 1
  for i, payload in ipairs(some) do
    bytes = bytes + #payload
    if call('SADD', fresh, payload) == 0 then
      call('LSET', key, from + i - 1, hole)
      if times == n then call('LSET', starts, from + i - 1, hole) end
      holes = holes + 1
      if #dropped < 5 then dropped[holes] = payload end
    end
  end
  from, page = from + #some, math.max(1, math.min(256, math.floor(262144 * #some / bytes)))
end
if holes > 0 then
  call('LREM', key, 0, hole)
  if times == n then
    call('LREM', starts, 0, hole)
    times = times - holes
  end
  n = n - holes
  forget_seen(ARGV[1], queue) -- the dropped ones were anywhere
end
local removed = call('SCARD', set) - n
call('UNLINK', removed > 0 and set or fresh)
if n > 0 and removed > 0 then call('RENAME', fresh, set) end

-- Excess times belong to jobs that other programs took from the head; missing ones to jobs that they pushed to the
-- tail.
local extra = times - n
if extra > 0 then call('LTRIM', starts, extra, -1) end
local seconds = {}
for i = 1, math.min(-extra, 1000) do seconds[i] = fmt('%.0f', math.floor(ms / 1000)) end
for i = 1, -extra, 1000 do call('RPUSH', starts, unpack(seconds, 1, math.min(1000, 1 - extra - i))) end
-- Unasked repairs of a queue take about a twentieth of the server's time, however many masters there are.
if cost > 0 then
  pcall_('HSET', state, 'rest', fmt('%.0f', ms + cost / 10000))
  pcall_('PEXPIRE', state, math.ceil(cost / 10000))
end
return {1, n, added, removed, holes, math.max(0, -extra), math.max(0, extra), dropped}
