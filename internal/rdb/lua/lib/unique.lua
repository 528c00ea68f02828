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
-- which no call goes on, so that healing never takes more than some twentieth of the
-- server's time. The first argument of every script here is the prefix.
--
-- A job that comes back to a long queue is not looked for all through it, and a set is not
-- believed where a job would be lost: it goes in, although an equal one may wait deep in the
-- queue. resqued:twins:<queue> holds such payloads, and those of which the new set above has
-- met another one: "<how many more than one>", and in the field of a zero byte how many
-- these are all in all. The lengths match with these counted in. A walk through the queue, a
-- part at a time, then drops all but the first of each: of one that it has met it notes
-- " <index>" behind the number, by which it shows, in the step that drops another, that the
-- first still waits.
--
-- DEFINES  lackscompanions(prefix): an error text or nil; needcompanions(prefix): may end the
--          script; healkeys(key): the three keys of a healing; utyped(key), instep(key, n):
--          yes or no; healing(key): how far it is; twins.*: equal jobs;
--          found(key, payload, n, bound): true, false, or nil for unknown;
--          waiting(key, payload, n, sure): whether an equal job waits, whether that is only
--          likely; upush(key, payload, start, head, sure): the new length or nil;
--          putback(prefix, queue, payload, start, head): false for a duplicate;
--          forget_member(key, index, payload, length): its start time;
--          rotated(key, payload), unheal(key): no result;
--          heal(key, n, forced): the length, what was done; tend(key, n): the length, whether a
--          healing has ended
-- NEEDS    base, records, rights
-- KEYS     reads and writes queue:<q>, its companions and those above
-- COST     utyped: 2 commands; instep: 2 or 3; upush: about 8, and a look through up to 1,000
--          elements, of a long queue that is out of step 20,000 and for putback 50,000;
--          forget_member: 4 to 8; heal: 2 per element of 1,000 at most, or of 1 MB

local part = 1000 -- elements of one step
local near = 1000 -- elements that may always be looked at
local partbytes = 1048576
local healttl = 600000 -- ms; of a healing that no call goes on with

-- lackscompanions and needcompanions ask for the rights to keep them.
local function lackscompanions(prefix)
  local key = prefix .. 'queue:'
  return lacks(key, 'LLEN', 'LRANGE') -- for what equals a job
    or lacks(key .. ':uniqueue', 'EXISTS', 'SADD', 'SREM', 'SCARD', 'SISMEMBER')
    or lacks(key .. ':start_at', 'LPOP', 'LPUSH', 'RPUSH', 'LINDEX', 'LPOS', 'LSET', 'LREM', 'LTRIM')
    or lacks(prefix .. 'resqued:heal:', 'HSET', 'HGET', 'HMGET', 'HDEL', 'HINCRBY', 'PEXPIRE', 'UNLINK', 'RENAME', 'PERSIST')
end

local function needcompanions(prefix)
  local what = lackscompanions(prefix)
  if what then error(redis.error_reply(what)) end
end

local function healkeys(key)
  local prefix = ARGV[1]
  local queue = sub(key, #prefix + 7) -- behind "queue:"
  return prefix .. 'resqued:heal:' .. queue, prefix .. 'resqued:healing:' .. queue, prefix .. 'resqued:twins:' .. queue
end

-- utyped reports whether the companions are what they should be, or are not there.
local function utyped(key)
  return type(query('SCARD', key .. ':uniqueue')) == 'number' and len(key .. ':start_at') ~= nil
end

local healings = {}

-- healing returns how far a queue's healing is; at is nil if there is none. In its second
-- part, the walk for twins, second is o if there was no other, else h; gone is how many jobs
-- have left the head since it began, more whether twins came since.
local function healing(key)
  local h = healings[key]
  if not h then
    local v = pcall_('HMGET', (healkeys(key)), 'at', 'anchor', 'rest', 'second', 'gone', 'more')
    h = v.err and {rest = 0} or {at = tonumber(v[1]), anchor = v[2], rest = tonumber(v[3]) or 0,
      second = match(v[4] or '', '^[ho]$'), gone = tonumber(v[5]) or 0, more = v[6] == '1'}
    healings[key] = h
  end
  return h
end

-- deep is how many elements from each end may be looked at for one job, looks how many a
-- script may look at all in all, lasting how long (ms) twins are known that no call looks for:
-- without them a strict queue would be out of step.
local twins = {deep = 25000, looks = 50000, lasting = 604800000}

local function note_healing(key, h)
  local state, fresh, other = healkeys(key)
  call('HSET', state, 'at', h.at, 'anchor', h.anchor or '', 'rest', fmt('%.0f', h.rest), 'second', h.second or '',
    'gone', h.gone or 0, 'more', h.more and '1' or '')
  call('PEXPIRE', state, healttl)
  call('PEXPIRE', fresh, healttl)
  call('PEXPIRE', other, twins.lasting)
end

-- many returns how many twins a queue has.
function twins.many(key)
  local h = healing(key)
  if not h.twins then
    local n = pcall_('HGET', (select(3, healkeys(key))), '\0')
    h.twins = type(n) == 'string' and tonumber(n) or 0
  end
  return h.twins
end

-- more counts a payload of which one more waits.
function twins.more(key, payload)
  local h, other = healing(key), select(3, healkeys(key))
  local had = pcall_('HGET', other, payload)
  h.twins = nil
  if refused(had) or refused(pcall_('HINCRBY', other, '\0', 1)) then return end
  call('HSET', other, payload, had and tonumber(match(had, '^%d+')) + 1 or 1)
  call('PEXPIRE', other, twins.lasting)
end

-- less counts one of a payload that is counted no more, and reports whether there was any.
function twins.less(key, payload)
  if twins.many(key) == 0 then return false end
  local h, other = healing(key), select(3, healkeys(key))
  local n, rest = match(call('HGET', other, payload) or '', '^(%d+)(.*)$')
  if not n then return false end
  h.twins = nil
  call('HINCRBY', other, '\0', -1)
  if n == '1' then call('HDEL', other, payload) else call('HSET', other, payload, n - 1 .. rest) end
  return true
end

-- note keeps a payload that was put beside its equal, if there is one.
function twins.note(key, payload)
  local h = healing(key)
  twins.more(key, payload)
  if h.at and h.second and not h.more then
    h.more = true
    note_healing(key, h)
  end
end

-- instep reports whether the companions match a queue of n jobs.
local function instep(key, n)
  local members = call('SCARD', key .. ':uniqueue')
  return (members == n or members < n and members + twins.many(key) == n) and call('LLEN', key .. ':start_at') == n
end

-- anchored reports whether the jobs that the new set holds are still those at the head.
local function anchored(key, h)
  if h.at == 0 then return true end
  local last = call('LINDEX', key, h.at - 1)
  if not last or redis.sha1hex(last) ~= h.anchor then return false end
  local has = pcall_('SCARD', (select(2, healkeys(key))))
  return type(has) == 'number' and has > 0
end

-- moved_out notes in the healing of a queue that the job with an index was taken out, and
-- whether an equal one was left.
local function moved_out(key, index, payload, left)
  local h = healing(key)
  if not h.at or index >= h.at then return end
  local fresh = select(2, healkeys(key))
  h.at = h.at - 1
  if h.second then
    h.gone = h.gone + 1
  elseif index == h.at and redis.sha1hex(payload) ~= h.anchor then
    h.at = 0 -- others have shifted the queue: it begins anew
    call('UNLINK', fresh)
  else
    if not left then pcall_('SREM', fresh, payload) end
    if index == h.at and h.at > 0 then h.anchor = redis.sha1hex(call('LINDEX', key, h.at - 1) or '') end
  end
  note_healing(key, h)
end

-- moved_in notes there that a job was put at the head.
local function moved_in(key, payload)
  local h = healing(key)
  if not h.at or h.at == 0 then return end
  if h.second then h.gone = h.gone - 1 else pcall_('SADD', (select(2, healkeys(key))), payload) end
  h.at = h.at + 1
  note_healing(key, h)
end

-- unheal ends a healing, because much has changed at once; if need be another begins. The
-- twins that are no part of it stay: without them the lengths would not match.
local function unheal(key)
  local h = healing(key)
  if not h.at then return end
  local state, fresh, other = healkeys(key)
  call('UNLINK', state, h.second and fresh or other, fresh)
  healings[key] = nil
end

-- found looks for a payload among the first and the last jobs, bound of each, of a
-- queue of n; among fewer when the script has looked at many. It returns nil if it was in
-- neither and there are more.
local function found(key, payload, n, bound)
  if n == 0 then return false end
  local room = math.max(math.floor(twins.looks / 2), 100)
  bound = math.min(bound, n <= near and near or room)
  local at = pcall_('LPOS', key, payload, 'RANK', -1, 'MAXLEN', bound)
  if type(at) ~= 'table' then
    local ahead = not at and n > bound and call('LPOS', key, payload, 'MAXLEN', bound)
    twins.looks = twins.looks - (at and n - at or math.min(n, bound) + (ahead or n > bound and bound or 0))
    if at or ahead then return true end
  else -- a server before 6.0.6, where an element costs ten times as much
    bound = math.min(bound, near, math.max(100, math.floor(twins.looks / 2000) * 100))
    twins.looks = twins.looks - 10 * math.min(n, 2 * bound)
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

-- waiting reports whether an equal job waits in a queue of n, and whether that is no more than
-- likely, though the companions match the queue. The list decides where that
-- costs little, so that nothing is refused for a member that was left behind.
-- Of a long queue it is the set; if that is in doubt both ends of the list, and a second
-- equal job that comes in so is dropped by the healing. With sure a member does not do:
-- no caller would hear of the job that is dropped.
local function waiting(key, payload, n, sure)
  local h = healing(key)
  if (not h.at or h.second) and instep(key, n) then
    local there
    if n <= near then there = found(key, payload, n, near) end
    if there ~= nil then return there end
    if call('SISMEMBER', key .. ':uniqueue', payload) == 0 then return false end
    if not sure then return true end
    there = found(key, payload, n, twins.deep)
    return there or false, there == nil
  end
  local there = found(key, payload, n, 10000)
  if there == nil and h.at and not h.second then
    there = call('SISMEMBER', (select(2, healkeys(key))), payload) == 1 and anchored(key, h)
  end
  return there or false
end

-- upush puts a payload at the tail or the head of a unique queue and returns the
-- new length, or nil if an equal one waits there already; see waiting for sure.
local function upush(key, payload, start, head, sure)
  local set = key .. ':uniqueue'
  local there, likely = waiting(key, payload, call('LLEN', key), sure)
  call('SADD', set, payload)
  if there then return nil end
  local push = head and 'LPUSH' or 'RPUSH'
  call(push, key .. ':start_at', start)
  local n = call(push, key, payload)
  if head then moved_in(key, payload) end
  if likely then twins.note(key, payload) end
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
-- unique queue of length, where it had an index, and returns its start time.
local function forget_member(key, index, payload, length)
  local left = twins.less(key, payload)
  if not left then call('SREM', key .. ':uniqueue', payload) end
  moved_out(key, index, payload, left)
  return match(removeat(key .. ':start_at', index, length) or '', '^%d+$') or '0'
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

-- first reports whether the first of two equal jobs still waits where the walk has met it, or
-- near that; the second has an index. r.touched grows by what that costs.
function twins.first(key, payload, index, n, met, h, r)
  local at = tonumber(match(met, ' (%-?%d+)$') or -1) - h.gone
  if at < 0 or at >= index then return false end
  r.touched = r.touched + 1 + math.floor(math.min(at, n - at) / 1000)
  if call('LINDEX', key, at) == payload then return true end
  local from = math.max(0, at - 100)
  local some = call('LRANGE', key, from, math.min(at + 100, index - 1))
  r.touched = r.touched + #some
  for i = 1, #some do if some[i] == payload then return true end end
  return false
end

-- heal goes a step on with healing a unique queue of n jobs, or begins. It returns
-- the length of the queue then, and what was done: done, whether that was the last
-- step; touched, how many elements were looked at; members and times in and out;
-- duplicates, the jobs dropped because an equal one waits before them; quiet, whether
-- nothing but twins was to be dropped; refused, why nothing was done.
local function heal(key, n, forced)
  local h, ms = healing(key), (now())
  local r = {done = false, touched = 0, membersin = 0, membersout = 0, duplicates = 0, timesin = 0, timesout = 0}
  if not forced and ms < h.rest and h.rest - ms < 10000 then return n, r end
  local state, fresh, other = healkeys(key)
  local set = key .. ':uniqueue'

  local begin = not h.second and (not h.at or not anchored(key, h))
  if begin then
    h.second = not h.at and twins.many(key) > 0 and instep(key, n) and 'o' or nil
    h.at, h.gone, h.more = 0, 0, false
  end
  -- A full server refuses this: then the queue is worked as it is.
  local ok = pcall_('HSET', state, 'at', h.at)
  if type(ok) == 'table' then
    h.at, r.refused = nil, ok.err
    return n, r
  end
  if begin then call('UNLINK', fresh, h.second and fresh or other) end

  local hole, holes, size, bytes, where = '\0' .. redis.sha1hex(key .. ms), 0, 1, 0, {}
  local from, at, starts = h.at, h.at, h.second and key .. ':start_at'
  if starts and call('LLEN', starts) ~= n then starts = nil end
  while r.touched < part and bytes < partbytes do
    local some = call('LRANGE', key, at, at + math.min(size, part - r.touched) - 1)
    if #some == 0 then break end
    local met = h.second and call('HMGET', other, unpack(some))
    for i, payload in ipairs(some) do
      if r.touched >= part then break end
      local index, second = at, false
      if met then
        second = met[i] and (where[payload] or twins.first(key, payload, index, n, met[i], h, r))
      else
        local new = call('SADD', fresh, payload) == 1
        second = where[payload]
        if new then r.membersin = r.membersin + call('SADD', set, payload) end
        if not new and not second then twins.more(key, payload) end
        if not second then h.anchor = payload end
      end
      if second then
        call('LSET', key, index, hole)
        if starts then call('LSET', starts, index, hole) end
        if met then twins.less(key, payload) end
        holes = holes + 1
      elseif not met or met[i] then
        where[payload] = index
        if met then
          call('HSET', other, payload, fmt('%s %d', match(met[i], '^%d+') or 1, index - holes + h.gone))
        end
      end
      at, r.touched, bytes = at + 1, r.touched + 1, bytes + #payload
    end
    size = math.min(2 * size, 256)
  end
  if holes > 0 then
    -- From the nearer end: the queue may be long.
    call('LREM', key, from < n / 2 and holes or -holes, hole)
    if starts then call('LREM', starts, from < n / 2 and holes or -holes, hole) end
    r.touched = r.touched + math.floor(math.min(at, n - from) / 100)
    n, at, r.duplicates = n - holes, at - holes, holes
  end
  if at > from and not h.second then h.anchor = redis.sha1hex(h.anchor) end
  h.at = at

  if h.at >= n and h.second then
    if h.more then -- another walk
      h.at, h.more = 0, false
    else
      call('UNLINK', fresh, other)
      r.quiet, h.twins = h.second == 'o', nil
      h.at, h.second, r.done = 0, nil, instep(key, n)
      if r.done then -- else others have changed the queue unnoticed: it begins anew
        call('UNLINK', state)
        h.at = nil
      end
    end
  elseif h.at >= n and healstarts(key, n, ms, r) then
    local had = call('SCARD', set)
    local has = call('SCARD', fresh)
    r.membersout, r.done = math.max(0, had - has), twins.many(key) == 0
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
    if not r.done then h.at, h.second, h.gone, h.more = 0, 'h', 0, false end
  end
  h.rest = ms + math.floor((r.touched + r.timesin + r.timesout / 10) / 40)
  if forced and not r.done then h.rest = ms + 1000 end -- no other call goes on with it meanwhile
  if not r.done then
    note_healing(key, h)
  elseif h.rest > ms then
    call('HSET', state, 'rest', fmt('%.0f', h.rest))
    call('PEXPIRE', state, 1000)
  end
  return n, r
end

-- tend heals a unique queue of n jobs if it is out of step or is being healed. It
-- returns its length then, and whether a healing has come to its end that was needed
-- because of others.
local function tend(key, n)
  if not healing(key).at and instep(key, n) and twins.many(key) == 0 then return n, false end
  local left, r = heal(key, n, false)
  return left, r.done and not r.quiet
end
