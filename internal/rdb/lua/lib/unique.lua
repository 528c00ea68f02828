-- unique keeps the companions of a unique queue in step with it, as resque-uniqueue
-- has them: <queue>:uniqueue is the set of its payloads, <queue>:start_at a list of
-- the times at which they were pushed, in the order of the queue.
--
-- Programs that do not know the companions push to such a queue and take from it,
-- too. The list is the truth, and unique_repair makes the companions match it. Until then
-- the queue is worked as it is.
--
-- A set is not believed where a job would be lost: what comes back to a queue goes in unless
-- the list shows an equal job. No script looks for it all through a long queue, so a second
-- equal job may wait. The lengths differ then, and the repair drops it.
--
-- DEFINES  utyped(key), instep(key, n): yes or no; elements_left: how many elements the script
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
-- COST     utyped, instep: 2 commands; upush: about 8, and a look through up to 1,000
--          elements, of a long queue that is out of step 20,000 and for putback 50,000;
--          forget_member: 2 to 4

local near = 1000 -- elements that may always be looked at
local elements_left = 50000

-- utyped reports whether the companions are what they should be, or are not there.
local function utyped(key)
  return type(query('SCARD', key .. ':uniqueue')) == 'number' and len(key .. ':start_at') ~= nil
end

-- instep reports whether the companions match a queue of n jobs.
local function instep(key, n)
  return call('SCARD', key .. ':uniqueue') == n and call('LLEN', key .. ':start_at') == n
end

-- found looks for a payload among the first and the last jobs, bound of each, of a
-- queue of n; among fewer when the script has looked at many. It returns nil if it was in
-- neither and there are more.
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

-- waiting reports whether an equal job waits in a queue of n. The list decides where that
-- costs little, so that nothing is refused for a member that was left behind. Of a long queue
-- in step a member is enough to refuse a push. With sure it is not: no caller would hear of
-- the job that is dropped.
local function waiting(key, payload, n, sure)
  if not instep(key, n) then return found(key, payload, n, 10000) or false end
  local there
  if n <= near then there = found(key, payload, n, near) end
  if there ~= nil then return there end
  if call('SISMEMBER', key .. ':uniqueue', payload) == 0 then return false end
  return not sure or found(key, payload, n, 25000) or false
end

-- push puts an element at the tail or the head of a list.
local function push(key, element, head)
  if head then return call('LPUSH', key, element) end
  return call('RPUSH', key, element)
end

-- upush puts a payload at the tail or the head of a unique queue and returns the
-- new length, or nil if an equal one waits there already; see waiting for sure.
local function upush(key, payload, start, head, sure)
  local there = waiting(key, payload, call('LLEN', key), sure)
  call('SADD', key .. ':uniqueue', payload)
  if there then return nil end
  push(key .. ':start_at', start, head)
  return push(key, payload, head)
end

-- putback puts the payload of a record back into its queue. It returns false if it
-- was dropped as the duplicate of one that waits there.
local function putback(prefix, queue, payload, start, head)
  local key = prefix .. 'queue:' .. queue
  pcall_('SADD', prefix .. 'queues', queue) -- it may have been removed meanwhile
  if start ~= '-' then return upush(key, payload, start, head, true) ~= nil end
  push(key, payload, head)
  return true
end

-- forget_member removes what the companions know of a job that was taken from a
-- unique queue of length, where it had an index, and returns its start time.
local function forget_member(key, index, payload, length)
  call('SREM', key .. ':uniqueue', payload)
  return match(removeat(key .. ':start_at', index, length) or '', '^%d+$') or '0'
end

-- rotated follows a job of a unique queue from its head to its tail.
local function rotated(key)
  local start = call('LPOP', key .. ':start_at')
  if start then call('RPUSH', key .. ':start_at', start) end
end
