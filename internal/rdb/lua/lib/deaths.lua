-- deaths counts the worker processes that died with a job. Queue and payload identify a job: equal jobs
-- share a count, which outlives their records.
--
--   resqued:deaths:<queue>  SHA-1 of a payload → "<deaths> <blame>": how many processes died while
--                           they held it, and how many of these deaths it may have caused; with
--                           any blame it is a suspect
--   resqued:died:<queue>    SHA-1 of a payload → its last death (ms)
--   resqued:deaths          queues with counts → when the counts were last looked at (ms)
--
-- A count ends with its job, or with the command that removes the job. If other programs take or
-- remove jobs, it expires: a week after the last death, or an hour if nothing waits in the queue. The
-- record of a job in hand also has its count.
--
-- DEFINES  dead.keys(prefix, queue): the three keys; dead.of(prefix, queue, payload): deaths,
--          blame; dead.note(prefix, queue, payload, deaths, blame, ms), dead.copy(prefix, from, to, payload, ms),
--          dead.forget(prefix, queue, payload), dead.forgetall(prefix, queue), dead.age(prefix, ms): no result
-- NEEDS    base, records
-- KEYS     reads and writes those above; age reads queue:<q>, resqued:suspects:<q> and resqued:lined
-- COST     of: 1 command; note: 6; copy: 1 or 8; forget: 2 to 4; forgetall: 2; O(1). age: 1, and for each of
--          ten queues at most 6, and 2 for each of 50 counts at most

local dead = {lasting = 604800000, idle = 3600000} -- ms

function dead.keys(prefix, queue)
  return prefix .. 'resqued:deaths:' .. queue, prefix .. 'resqued:died:' .. queue, prefix .. 'resqued:deaths'
end

function dead.of(prefix, queue, payload)
  local entry = pcall_('HGET', prefix .. 'resqued:deaths:' .. queue, redis.sha1hex(payload))
  local n, blame = match(type(entry) == 'string' and entry or '', '^(%d+) (%d+)$')
  if not n then return 0, 0 end
  -- A value from another program must fit into a record, too.
  local most = 999999999
  return math.min(tonumber(n) or most, most), math.min(tonumber(blame) or most, most)
end

function dead.note(prefix, queue, payload, deaths, blame, ms)
  local counts, times, queues = dead.keys(prefix, queue)
  local name, at = redis.sha1hex(payload), fmt('%.0f', ms)
  local function keep(command, key, ...)
    local bad = refused(pcall_(command, key, ...))
    if bad and find(bad, 'WRONGTYPE', 1, true) then -- only resqued uses the key
      pcall_('DEL', key)
      pcall_(command, key, ...)
    end
    pcall_('PEXPIRE', key, dead.lasting)
  end
  keep('ZADD', queues, at, queue)
  keep('ZADD', times, at, name)
  keep('HSET', counts, name, fmt('%d %d', deaths, blame))
end

-- copy gives a job that moves to another queue its count there.
function dead.copy(prefix, from, to, payload, ms)
  local deaths, blame = dead.of(prefix, from, payload)
  if deaths == 0 then return end
  local d, b = dead.of(prefix, to, payload)
  dead.note(prefix, to, payload, math.max(deaths, d), math.max(blame, b), ms)
end

-- forget drops the count of a job that has ended or was removed.
function dead.forget(prefix, queue, payload)
  local counts, times, queues = dead.keys(prefix, queue)
  local name = redis.sha1hex(payload)
  pcall_('ZREM', times, name)
  if pcall_('HDEL', counts, name) == 1 and pcall_('EXISTS', counts) == 0 then pcall_('ZREM', queues, queue) end
end

function dead.forgetall(prefix, queue)
  local counts, times, queues = dead.keys(prefix, queue)
  pcall_('UNLINK', counts, times)
  pcall_('ZREM', queues, queue)
end

-- age drops the counts of jobs that other programs have taken or removed, a part at a time.
function dead.age(prefix, ms)
  local some = pcall_('ZRANGE', prefix .. 'resqued:deaths', 0, 9)
  for _, queue in ipairs(some.err and {} or some) do
    local counts, times, queues = dead.keys(prefix, queue)
    local empty = len(prefix .. 'queue:' .. queue) == 0 and len(prefix .. 'resqued:suspects:' .. queue) == 0
      and pcall_('HEXISTS', prefix .. 'resqued:lined', queue) ~= 1
    local old = pcall_('ZRANGEBYSCORE', times, '-inf', fmt('%.0f', ms - (empty and dead.idle or dead.lasting)), 'LIMIT', 0, 50)
    for _, name in ipairs(old.err and {} or old) do
      pcall_('HDEL', counts, name)
      pcall_('ZREM', times, name)
    end
    if type(pcall_('ZCARD', times)) == 'number' and pcall_('EXISTS', counts, times) == 2 then
      pcall_('ZADD', queues, 'XX', fmt('%.0f', ms), queue)
    else
      dead.forgetall(prefix, queue)
    end
  end
end
