-- longjob_runs begins, pauses and ends runs of long jobs.
--
-- DEFINES  park(prefix, id, tenant, ms): no result; ofsubject(prefix, id, class, kind): yes or no;
--          behind(prefix, id): an owner or nil;
--          addrun(prefix, id, kind, class, args, queue, again, tenant, payload, ms),
--          endrun(prefix, id, status, keep, ms), displace(prefix, id, keep, ms): no result
-- NEEDS    base, records, unique, append, longjob, longjob_tenants
-- KEYS     reads and writes resqued:longjob:*, pushes to queue:<q> as append does
-- COST     addrun: about 15 commands; endrun: 7

-- A paused run has a field paused, the time of the pause. Otherwise it counts as waiting or running: it is
-- the newest of its kind and keeps its state. It is parked once the payload of its next slice is nowhere,
-- which takes until a process finds it in a queue.

-- park notes that, and takes the run's slice or place in line. Its sign of life is far in the future, so that
-- it is not considered lost.
local function park(prefix, id, tenant, ms)
  call('HSET', runkey(prefix, id), 'parked', '1')
  call('ZADD', activekey(prefix), '9000000000000000', id)
  if tenant and tenant ~= '' then giveup(prefix, tenant, id, ms) end
end

-- ofsubject reports whether a run is for a subject of a recurring job, however it was started, and counts it
-- among the runs that may wait or run.
local function ofsubject(prefix, id, class, kind)
  local subjects, starts = subjectskey(prefix, class), startskey(prefix, class)
  if pcall_('HEXISTS', subjects, kind) ~= 1 then return false end
  pcall_('SADD', starts, id)
  local left = pcall_('PTTL', subjects)
  if type(left) == 'number' and left > 0 then pcall_('PEXPIRE', starts, left) end
  return true
end

-- behind returns the in-flight record in which the code of a run, or of the run before it, still runs; nil =
-- none. In Redis the run may already be over.
local function behind(prefix, id)
  local v = call('HMGET', runkey(prefix, id), 'owner', 'behind')
  for _, name in ipairs({v[1] or '', v[2] or ''}) do
    if recorded(prefix, name) then return name end
  end
  return nil
end

-- addrun creates a run, the newest of its kind, and pushes its first slice. again is the queue of further
-- slices if not the class's; tenant may be ''.
local function addrun(prefix, id, kind, class, args, queue, again, tenant, payload, ms)
  local at, old = fmt('%.0f', ms), call('HGET', currentkey(prefix), kind)
  local name = old and behind(prefix, old)
  if name then call('HSET', runkey(prefix, id), 'behind', name) end
  call('HSET', runkey(prefix, id), 'kind', kind, 'class', class, 'args', args, 'first', queue, 'queue', queue,
    'again', again, 'status', 'queued', 'slice', '1', 'owner', '', 'fence', '0', 'created', at, 'seen', at)
  call('HSET', currentkey(prefix), kind, id)
  call('ZADD', activekey(prefix), at, id)
  if ofsubject(prefix, id, class, kind) then pcall_('HSET', subjectskey(prefix, class), kind, at) end
  if tenant ~= '' then
    -- name is the class as JSON, as in payloads.
    call('HSET', runkey(prefix, id), 'tenant', tenant, 'name', match(payload, '^{"class":(.-),"args":%["'))
  end
  queueslice(prefix, id, tenant, queue, payload, ms)
end

-- endrun sets a run's final status. It is forgotten after keep ms.
local function endrun(prefix, id, status, keep, ms)
  call('HSET', runkey(prefix, id), 'status', status, 'ended', fmt('%.0f', ms))
  call('HDEL', runkey(prefix, id), 'rerun', 'paused', 'parked')
  call('ZREM', activekey(prefix), id)
  call('ZADD', endedkey(prefix), fmt('%.0f', ms + keep), id)
  local v = call('HMGET', runkey(prefix, id), 'tenant', 'owner')
  if not v[1] then return end
  if recorded(prefix, v[2] or '') then
    call('ZREM', linekey(prefix, v[1]), id) -- its code runs; leave, or the discovery of its death, continues
  else
    giveup(prefix, v[1], id, ms)
  end
end

-- displace supersedes the previous newest run of a kind.
local function displace(prefix, id, keep, ms)
  local status = call('HGET', runkey(prefix, id), 'status')
  if active(status) then
    endrun(prefix, id, 'superseded', keep, ms)
    call('DEL', statekey(prefix, id))
  elseif status then
    local at = tonumber(call('ZSCORE', endedkey(prefix), id) or 0)
    if at > ms + keep then call('ZADD', endedkey(prefix), fmt('%.0f', ms + keep), id) end
  end
end
