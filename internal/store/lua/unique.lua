-- unique keeps the companions of a unique queue in step with it, as resque-uniqueue
-- has them: <queue>:uniqueue is the set of its payloads, <queue>:start_at a list of
-- the times at which they were pushed, in the order of the queue.

-- utyped tells whether the companions are what they should be, or are not there.
local function utyped(key)
  return type(pcall_('SCARD', key .. ':uniqueue')) == 'number' and len(key .. ':start_at') ~= nil
end

-- instep tells whether the companions match a queue of n jobs.
local function instep(key, n)
  return call('SCARD', key .. ':uniqueue') == n and call('LLEN', key .. ':start_at') == n
end

-- upush puts a payload at the tail or the head of a unique queue and returns the
-- new length, or nil if an equal one waits there already.
local function upush(key, payload, start, head)
  if call('SADD', key .. ':uniqueue', payload) == 0 then return nil end
  local push = head and 'LPUSH' or 'RPUSH'
  call(push, key .. ':start_at', start)
  return call(push, key, payload)
end

-- putback puts the payload of a record back into its queue. It returns false if it
-- was dropped as the duplicate of one that waits there.
local function putback(prefix, queue, payload, start, head)
  local key = prefix .. 'queue:' .. queue
  pcall_('SADD', prefix .. 'queues', queue) -- it may have been removed meanwhile
  if start ~= '-' then return upush(key, payload, start, head) ~= nil end
  call(head and 'LPUSH' or 'RPUSH', key, payload)
  return true
end

-- removeat takes the element with an index out of a list.
local function removeat(key, index)
  if index == 0 then return call('LPOP', key) end
  local value = call('LINDEX', key, index)
  if value then
    local hole = '\0' .. redis.sha1hex(index .. value) -- nothing that could stand there
    call('LSET', key, index, hole)
    call('LREM', key, -1, hole) -- from the tail, where it is most often
  end
  return value
end

-- forget_member removes what the companions know of a job that was taken from a
-- unique queue, where it had an index, and returns its start time.
local function forget_member(key, index, payload)
  call('SREM', key .. ':uniqueue', payload)
  return match(removeat(key .. ':start_at', index) or '', '^%d+$') or '0'
end

-- heal brings a unique queue of n jobs and its companions back in step, a part of a
-- long queue at a time, and returns the length of the queue then.
local function heal(key, n)
  local set, starts = key .. ':uniqueue', key .. ':start_at'
  call('DEL', set)
  local i = 0
  for _, payload in ipairs(call('LRANGE', key, 0, -1)) do
    if call('SADD', set, payload) == 0 then
      removeat(key, i)
      n = n - 1
    else
      i = i + 1
    end
  end
  local extra = call('LLEN', starts) - n
  if extra > 0 then call('LTRIM', starts, extra, -1) end
  local ms = now()
  for _ = extra, -1 do call('RPUSH', starts, fmt('%.0f', math.floor(ms / 1000))) end
  return n
end
