-- deaths counts the worker processes that have died with a job. Its queue and its payload are
-- what identifies one: equal jobs share a count, which outlives their records.
--
--   resqued:deaths:<queue>  SHA-1 of a payload → "<deaths> <blame>": how many processes have
--                           died that held it, and for how many of them it may be to blame;
--                           with any it is a suspect
--   resqued:died:<queue>    the same → when one died last (ms)
--   resqued:deaths          the queues that have any → when the counts were looked at (ms)
--
-- A count ends with its job, or with the command that removes that. Where others take or
-- remove jobs, it is dropped with age: a week after the last death, and an hour after it if
-- nothing waits in the queue. A job in hand also has its count in its record.
--
-- DEFINES  dead.keys(prefix, queue): the three keys; dead.of(prefix, queue, payload): deaths,
--          blame; dead.note(prefix, queue, payload, deaths, blame, ms), dead.forget(prefix,
--          queue, payload), dead.forgetall(prefix, queue), dead.age(prefix, ms): no result
-- NEEDS    base, records
-- KEYS     reads and writes those above; age reads queue:<q>, resqued:suspects:<q> and resqued:lined
-- COST     of: 1 command; note: 6; forget: 2 to 4; forgetall: 2; O(1). age: 1, and for each of
--          ten queues at most 6, and 2 for each of 50 counts at most

local dead = {lasting = 604800000, idle = 3600000} -- ms

function dead.keys(prefix, queue)
  return prefix .. 'resqued:deaths:' .. queue, prefix .. 'resqued:died:' .. queue, prefix .. 'resqued:deaths'
end

-- of returns how many processes have died that held a job, and for how many of them it may
-- be to blame.
function dead.of(prefix, queue, payload)
  local entry = pcall_('HGET', prefix .. 'resqued:deaths:' .. queue, redis.sha1hex(payload))
  local n, blame = match(type(entry) == 'string' and entry or '', '^(%d+) (%d+)$')
  if not n then return 0, 0 end
  -- What a stranger wrote must fit into a record as well.
  local most = 999999999
  return math.min(tonumber(n) or most, most), math.min(tonumber(blame) or most, most)
end

-- note keeps the count of a job.
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

-- forget drops the count of a job that has come to its end, or was removed.
function dead.forget(prefix, queue, payload)
  local counts, times, queues = dead.keys(prefix, queue)
  local name = redis.sha1hex(payload)
  pcall_('ZREM', times, name)
  if pcall_('HDEL', counts, name) == 1 and pcall_('EXISTS', counts) == 0 then pcall_('ZREM', queues, queue) end
end

-- forgetall drops those of all jobs of a queue.
function dead.forgetall(prefix, queue)
  local counts, times, queues = dead.keys(prefix, queue)
  pcall_('UNLINK', counts, times)
  pcall_('ZREM', queues, queue)
end

-- age drops counts of jobs that others have taken or removed, a part at a time.
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
