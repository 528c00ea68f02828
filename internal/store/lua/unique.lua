-- unique keeps the companions of a unique queue in step with it, as resque-uniqueue
-- has them: <queue>:uniqueue is the set of its payloads, <queue>:start_at a list of
-- the times at which they were pushed, in the order of the queue.
--
-- Programs that do not know the companions push to such a queue and take from it,
-- too. Then the list is the truth, and the companions are healed: a new set is built
-- beside the old one, a part of the queue at a time, and takes its place at the end.
-- resqued:heal:<queue> is how far that has come: "at", how many jobs at the head the
-- new set, resqued:healing:<queue>, holds; "anchor", the SHA-1 of the last of them, by
-- which it shows that others have taken jobs from there; "rest", the time before
-- which nobody goes on, so that healing never takes more than some twentieth of the
-- server's time. The first argument of every script here is the prefix.

local part = 1000 -- elements of one step
local near = 1000 -- elements that may always be looked at
local partbytes = 1048576
local healttl = 600000 -- ms; of what nobody goes on with

-- lackscompanions and needcompanions ask for the rights to keep them.
local function lackscompanions(prefix)
  local key = prefix .. 'queue:'
  return lacks(key .. ':uniqueue', 'SADD', 'SREM', 'SCARD', 'SISMEMBER')
    or lacks(key .. ':start_at', 'LPOP', 'LPUSH', 'RPUSH', 'LINDEX', 'LPOS', 'LSET', 'LREM', 'LTRIM')
    or lacks(prefix .. 'resqued:heal:', 'HSET', 'PEXPIRE', 'UNLINK', 'RENAME', 'PERSIST')
end

local function needcompanions(prefix)
  local what = lackscompanions(prefix)
  if what then error(redis.error_reply(what)) end
end

local function healkeys(key)
  local prefix = ARGV[1]
  local queue = sub(key, #prefix + 7) -- behind "queue:"
  return prefix .. 'resqued:heal:' .. queue, prefix .. 'resqued:healing:' .. queue
end

-- utyped tells whether the companions are what they should be, or are not there.
local function utyped(key)
  return type(query('SCARD', key .. ':uniqueue')) == 'number' and len(key .. ':start_at') ~= nil
end

-- instep tells whether the companions match a queue of n jobs.
local function instep(key, n)
  return call('SCARD', key .. ':uniqueue') == n and call('LLEN', key .. ':start_at') == n
end

local healings = {}

-- healing returns how far a queue's healing is; at is nil if there is none.
local function healing(key)
  local h = healings[key]
  if not h then
    local v = pcall_('HMGET', (healkeys(key)), 'at', 'anchor', 'rest')
    h = v.err and {rest = 0} or {at = tonumber(v[1]), anchor = v[2], rest = tonumber(v[3]) or 0}
    healings[key] = h
  end
  return h
end

local function note_healing(key, h)
  local state, fresh = healkeys(key)
  call('HSET', state, 'at', h.at, 'anchor', h.anchor or '', 'rest', fmt('%.0f', h.rest))
  call('PEXPIRE', state, healttl)
  call('PEXPIRE', fresh, healttl)
end

-- anchored tells whether the jobs that the new set holds are still those at the head.
local function anchored(key, h)
  if h.at == 0 then return true end
  local last = call('LINDEX', key, h.at - 1)
  if not last or redis.sha1hex(last) ~= h.anchor then return false end
  local has = pcall_('SCARD', (select(2, healkeys(key))))
  return type(has) == 'number' and has > 0
end

-- moved_out tells the healing of a queue that the job with an index was taken out.
local function moved_out(key, index, payload)
  local h = healing(key)
  if not h.at or index >= h.at then return end
  local fresh = select(2, healkeys(key))
  h.at = h.at - 1
  if index == h.at and redis.sha1hex(payload) ~= h.anchor then
    h.at = 0 -- others have shifted the queue: it begins anew
    call('UNLINK', fresh)
  else
    pcall_('SREM', fresh, payload)
    if index == h.at and h.at > 0 then h.anchor = redis.sha1hex(call('LINDEX', key, h.at - 1) or '') end
  end
  note_healing(key, h)
end

-- moved_in tells it that a job was put at the head.
local function moved_in(key, payload)
  local h = healing(key)
  if not h.at or h.at == 0 then return end
  pcall_('SADD', (select(2, healkeys(key))), payload)
  h.at = h.at + 1
  note_healing(key, h)
end

-- unheal ends a healing, because much has changed at once; if need be another begins.
local function unheal(key)
  if not healing(key).at then return end
  call('UNLINK', healkeys(key))
  healings[key] = nil
end

-- found looks for a payload among the first and the last jobs, bound of each, of a
-- queue of n. It returns nil if it was in neither and there are more.
local function found(key, payload, n, bound)
  if n == 0 then return false end
  local at = pcall_('LPOS', key, payload, 'RANK', -1, 'MAXLEN', bound)
  if type(at) == 'number' then return true end
  if type(at) ~= 'table' then
    if n > bound and call('LPOS', key, payload, 'MAXLEN', bound) then return true end
  else -- a server before 6.0.6
    bound = math.min(bound, near)
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

-- waiting tells whether an equal job waits in a queue of n. The list tells where that
-- costs little, so that nothing is refused for a member that somebody has left behind.
-- Of a long queue it is the set; if that is in doubt both ends of the list, and a second
-- equal job that comes in so is dropped by the healing. With sure a member does not do:
-- nobody would hear of the job that is dropped.
local function waiting(key, payload, n, sure)
  local h = healing(key)
  if not h.at and instep(key, n) then
    if n <= near then return found(key, payload, n, near) end
    local member = call('SISMEMBER', key .. ':uniqueue', payload) == 1
    return member and (not sure or found(key, payload, n, n) ~= false)
  end
  local there = found(key, payload, n, 10000)
  if there == nil and h.at then
    there = call('SISMEMBER', (select(2, healkeys(key))), payload) == 1 and anchored(key, h)
  end
  return there or false
end

-- upush puts a payload at the tail or the head of a unique queue and returns the
-- new length, or nil if an equal one waits there already; see waiting for sure.
local function upush(key, payload, start, head, sure)
  local set = key .. ':uniqueue'
  if waiting(key, payload, call('LLEN', key), sure) then
    call('SADD', set, payload)
    return nil
  end
  call('SADD', set, payload)
  local push = head and 'LPUSH' or 'RPUSH'
  call(push, key .. ':start_at', start)
  local n = call(push, key, payload)
  if head then moved_in(key, payload) end
  return n
end

-- putback puts the payload of a record back into its queue. It returns false if it
-- was dropped as the duplicate of one that waits there.
local function putback(prefix, queue, payload, start, head)
  local key = prefix .. 'queue:' .. queue
  pcall_('SADD', prefix .. 'queues', queue) -- it may have been removed meanwhile
  if start ~= '-' then return upush(key, payload, start, head, true) ~= nil end
  call(head and 'LPUSH' or 'RPUSH', key, payload)
  return true
end

-- forget_member removes what the companions know of a job that was taken from a
-- unique queue, where it had an index, and returns its start time.
local function forget_member(key, index, payload)
  call('SREM', key .. ':uniqueue', payload)
  moved_out(key, index, payload)
  return match(removeat(key .. ':start_at', index) or '', '^%d+$') or '0'
end

-- rotated follows a job of a unique queue from its head to its tail.
local function rotated(key, payload)
  moved_out(key, 0, payload)
  local start = call('LPOP', key .. ':start_at')
  if start then call('RPUSH', key .. ':start_at', start) end
end

-- healstarts brings the number of start times, a part at a time, to that of the n
-- jobs. Times too many belong to jobs that others took, from the head; those missing
-- to jobs that others pushed, to the tail.
local function healstarts(key, n, ms, r)
  local starts = key .. ':start_at'
  local extra = call('LLEN', starts) - n
  if extra > 0 then
    local out = math.min(extra, 10 * part)
    call('LTRIM', starts, out, -1)
    r.timesout, extra = out, extra - out
  elseif extra < 0 then
    local times, second = {}, fmt('%.0f', math.floor(ms / 1000))
    for i = 1, math.min(-extra, part) do times[i] = second end
    call('RPUSH', starts, unpack(times))
    r.timesin, extra = #times, extra + #times
  end
  return extra == 0
end

-- twice makes a hole of the job with an index, which the new set says is the second of
-- its kind, if another one does wait: no job is dropped on the word of a set.
local function twice(key, payload, index, hole)
  call('LSET', key, index, hole)
  local other = pcall_('LPOS', key, payload)
  if type(other) == 'table' then -- a server before 6.0.6: only LINSERT tells there
    other = call('LINSERT', key, 'BEFORE', payload, hole .. payload) > 0
    if other then call('LREM', key, 1, hole .. payload) end
  end
  if not other then call('LSET', key, index, payload) end
  return other
end

-- heal goes a step on with healing a unique queue of n jobs, or begins. It returns
-- the length of the queue then, and what was done: done, whether that was the last
-- step; touched, how many elements were looked at; members and times in and out;
-- duplicates, the jobs dropped because an equal one waits before them; refused, why
-- nothing was done.
local function heal(key, n, forced)
  local h, ms = healing(key), (now())
  local r = {done = false, touched = 0, membersin = 0, membersout = 0, duplicates = 0, timesin = 0, timesout = 0}
  if not forced and ms < h.rest and h.rest - ms < 10000 then return n, r end
  local state, fresh = healkeys(key)
  local set = key .. ':uniqueue'

  local begin = not h.at or not anchored(key, h)
  if begin then h.at = 0 end
  -- A full server refuses this: then the queue is worked as it is.
  local ok = pcall_('HSET', state, 'at', h.at)
  if type(ok) == 'table' then
    h.at, r.refused = nil, ok.err
    return n, r
  end
  if begin then call('UNLINK', fresh) end

  local hole, holes, size, bytes, stale = '\0' .. redis.sha1hex(key .. ms), 0, 1, 0, false
  local from, at = h.at, h.at
  while r.touched < part and bytes < partbytes do
    local some = call('LRANGE', key, at, at + math.min(size, part - r.touched) - 1)
    if #some == 0 then break end
    for i, payload in ipairs(some) do
      if call('SADD', fresh, payload) == 1 then
        r.membersin = r.membersin + call('SADD', set, payload)
        h.anchor = payload
      elseif twice(key, payload, at + i - 1, hole) then
        holes = holes + 1
      else
        stale = true
      end
      bytes = bytes + #payload
    end
    at, r.touched = at + #some, r.touched + #some
    size = math.min(2 * size, 256)
  end
  if holes > 0 then
    -- From the nearer end: the queue may be long.
    call('LREM', key, from < n / 2 and holes or -holes, hole)
    r.touched = r.touched + math.floor(math.min(at, n - from) / 100)
    n, at, r.duplicates = n - holes, at - holes, holes
  end
  if at > from then h.anchor = redis.sha1hex(h.anchor) end
  h.at = at
  if stale then
    h.at = 0 -- others have changed the queue unnoticed: it begins anew
    call('UNLINK', fresh)
  end

  if h.at >= n and healstarts(key, n, ms, r) then
    local had = call('SCARD', set)
    local has = call('SCARD', fresh)
    r.membersout, r.done = math.max(0, had - has), true
    if has == 0 then
      call('UNLINK', set)
    else
      call('PERSIST', fresh)
      -- Not over the old one, which the server would free at once, however long it
      -- is: that takes the place of the state, which ends here.
      if had > 0 then call('RENAME', set, state) end
      call('RENAME', fresh, set)
    end
    call('UNLINK', state)
    h.at, h.anchor = nil, nil
  end
  h.rest = ms + math.floor((r.touched + r.timesin + r.timesout / 10) / 40)
  if forced and not r.done then h.rest = ms + 1000 end -- nobody else goes on with it meanwhile
  if not r.done then
    note_healing(key, h)
  elseif h.rest > ms then
    call('HSET', state, 'rest', fmt('%.0f', h.rest))
    call('PEXPIRE', state, 1000)
  end
  return n, r
end

-- tend heals a unique queue of n jobs if it is out of step or is being healed. It
-- returns its length then, and whether a healing has come to its end.
local function tend(key, n)
  if not healing(key).at and instep(key, n) then return n, false end
  local left, r = heal(key, n, false)
  return left, r.done
end
