-- unique keeps a unique queue's companions in step with it, in resque-uniqueue's format: <queue>:uniqueue
-- is the set of its payloads, <queue>:start_at a list of their push times, in queue order.
--
-- Programs that do not know the companions also push to such a queue and take from it. The list is the
-- truth, and unique_repair makes the companions match it. Until then the queue is worked as it is.
--
-- The set is not trusted if that could lose a job: a job that returns to its queue is pushed unless the
-- list shows an equal one. No script searches a whole long queue, so a second equal job may wait. Then
-- the lengths differ, and the repair drops it.
--
-- DEFINES  utyped(key), instep(key, n): yes or no; queueobstacle(key, unique): what is in the way of a push, or nil; elements_left: how many elements the script
--          may yet look at for jobs;
--          found(key, payload, n, bound): true, false, or nil for unknown;
--          waiting(key, payload, n, sure): whether an equal job waits;
--          push(key, element, head): the new length;
--          upush(key, payload, start, head, sure): the new length or nil;
--          putback(prefix, queue, payload, start, head): false for a duplicate;
--          forget_member(key, index, payload, length): its start time;
--          rotated(key): no result
-- NEEDS    base, records
-- KEYS     reads and writes queue:<q> and its companions
-- COST     utyped, instep: 2 commands; queueobstacle: 1, or 3; upush: about 8, and a look through up to 1,000
--          elements, of a long queue that is out of step 20,000 and for putback 50,000;
--          forget_member: 2 to 4

local near = 1000 -- elements that may always be looked at
local elements_left = 50000

-- utyped reports whether the companions have the right types or do not exist.
local function utyped(key)
  return type(query('SCARD', key .. ':uniqueue')) == 'number' and len(key .. ':start_at') ~= nil
end

-- queueobstacle says which key of a queue has a type that stops a push, or returns nil.
local function queueobstacle(key, unique)
  if unique and not utyped(key) then return key .. ':uniqueue is not a set or ' .. key .. ':start_at not a list' end
  return notlist(key)
end

-- instep reports whether the companions match a queue of n jobs.
local function instep(key, n)
  return call('SCARD', key .. ':uniqueue') == n and call('LLEN', key .. ':start_at') == n
end

-- found searches the first and last bound jobs of a queue of n; fewer if the script has already looked at
-- many. It returns nil if the payload was in neither part and there are more jobs.
local function found(key, payload, n, bound)
  if n == 0 then return false end
  local room = math.max(math.floor(elements_left / 2), 100)
  bound = math.min(bound, n <= near and near or room)
  local at = pcall_('LPOS', key, payload, 'RANK', -1, 'MAXLEN', bound)
  if type(at) ~= 'table' then
    local ahead = not at and n > bound and call('LPOS', key, payload, 'MAXLEN', bound)
    elements_left = elements_left - (at and n - at or math.min(n, bound) + (ahead or n > bound and bound or 0))
    if at or ahead then return true end
  else -- a server before 6.0.6, where an element costs ten times as much
    bound = math.min(bound, near, math.max(100, math.floor(elements_left / 2000) * 100))
    elements_left = elements_left - 10 * math.min(n, 2 * bound)
    for i = 0, bound - 1, 100 do
      for _, p in ipairs(call('LRANGE', key, -i - 100, -i - 1)) do if p == payload then return true end end
    end
    for i = 0, n > bound and bound - 1 or -1, 100 do
      for _, p in ipairs(call('LRANGE', key, i, i + 99)) do if p == payload then return true end end
    end
  end
  if n <= 2 * bound then return false end
  return nil
end

-- waiting reports whether an equal job waits in a queue of n. Where that is cheap, the list decides, so that
-- a stale member of the set blocks nothing. For a long queue in step, the set is enough to refuse a push,
-- but not if sure: then no caller would learn of the dropped job.
local function waiting(key, payload, n, sure)
  if not instep(key, n) then return found(key, payload, n, 10000) or false end
  local there
  if n <= near then there = found(key, payload, n, near) end
  if there ~= nil then return there end
  if call('SISMEMBER', key .. ':uniqueue', payload) == 0 then return false end
  return not sure or found(key, payload, n, 25000) or false
end

local function push(key, element, head)
  if head then return call('LPUSH', key, element) end
  return call('RPUSH', key, element)
end

-- upush puts a payload at the tail or head of a unique queue and returns the new length, or nil if an equal
-- job waits; see waiting for sure.
local function upush(key, payload, start, head, sure)
  local there = waiting(key, payload, call('LLEN', key), sure)
  call('SADD', key .. ':uniqueue', payload)
  if there then return nil end
  push(key .. ':start_at', start, head)
  return push(key, payload, head)
end

-- putback returns a record's payload to its queue. It returns false if it was dropped as a duplicate.
local function putback(prefix, queue, payload, start, head)
  local key = prefix .. 'queue:' .. queue
  pcall_('SADD', prefix .. 'queues', queue) -- it may have been removed
  if start ~= '-' then return upush(key, payload, start, head, true) ~= nil end
  push(key, payload, head)
  return true
end

-- forget_member removes a taken job from the companions of a unique queue. It had this index in a queue of
-- length. It returns the job's start time.
local function forget_member(key, index, payload, length)
  call('SREM', key .. ':uniqueue', payload)
  return match(removeat(key .. ':start_at', index, length) or '', '^%d+$') or '0'
end

-- rotated moves a start time along with a job that moved from head to tail.
local function rotated(key)
  local start = call('LPOP', key .. ':start_at')
  if start then call('RPUSH', key .. ':start_at', start) end
end
