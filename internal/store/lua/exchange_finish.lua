-- exchange_finish ends the jobs left by the fast path: plain ones that came with others, and all others. A call that
-- wants no jobs ends here. A part of exchange; see exchange_fast for the arguments.
--
-- An end that cannot be written, because a key has the wrong type, is stuck: the job stays unchanged, and the process
-- sends the end again. With flag x, it is parked.
--
-- DEFINES  starved: whether any queue may have a counter of locked jobs
-- NEEDS    all parts before it
-- COST     3 commands per plain completion, 5 to 15 per other one, and those of freed in blocked_queues and lines

local ends = {failed = 0, processed = 0}

-- read returns the call's completion of a job that is not plain.
function ends.read(at)
  local e = {
    token = ARGV[at], kind = ARGV[at + 1], queue = ARGV[at + 2], lock = ARGV[at + 3], flags = ARGV[at + 4], worker = ARGV[at + 5],
    deaths = ARGV[at + 6], text = ARGV[at + 7], sent = ARGV[at + 7], pause = tonumber(ARGV[at + 8]), gap = 0,
  }
  if ends.flag(e, 'n') then e.count, e.text = ends.counted(e.text) end
  if e.kind == 'u' then
    -- The payload is kept elsewhere. If it is gone, the job has failed.
    local n, from = match(e.text, '^(%d+)\n()')
    local kept = sub(e.text, from, from + n - 1)
    e.text, e.kind = sub(e.text, from + n), parked.payload(prefix, kept) and 'b' or 'f'
    if e.kind == 'b' then e.kept = kept end
  end
  if ends.flag(e, 'g') then e.gap, e.text = parked.gapped(e.text) end
  e.large = e.kind == 'f' and ends.flag(e, 'l')
  e.list = ends.flag(e, 'm') and parked.listed(prefix, e.queue) or 'failed'
  e.back = e.kind == 'r' or e.kind == 'b' or e.kind == 't'
  if e.back or e.deaths ~= '0' or e.gap > 0 or e.large or ends.flag(e, 'x') then
    local raw = call('HGET', inflight, e.token)
    e.record = raw and unpack_(raw)
    e.unread = raw and not e.record and (e.back or e.gap > 0 or e.large)
  end
  return e
end

function ends.flag(e, letter) return e.flags ~= '' and find(e.flags, letter, 1, true) end

-- counted reads the count before a failure record, "<key length> <value> <seconds to live, 0 for ever>\n<key>", in
-- resque-retry's format: the value is the number of the last run, from 0. The record follows.
function ends.counted(text)
  local n, value, seconds, at = match(text, '^(%d+) (%d+) (%d+)\n()')
  local behind = at + tonumber(n)
  local key = sub(text, at, behind - 1)
  return {key = prefix .. key, value = value, ttl = tonumber(seconds), shown = prefix .. 'failure-' .. key}, sub(text, behind)
end

-- keep_count counts the run of a job that runs again after a pause (ms). Until then it keeps the record that
-- resque-retry's page shows.
function ends.keep_count(count, record, pause)
  if count.ttl > 0 then
    call('SET', count.key, count.value, 'EX', count.ttl)
  else
    call('SET', count.key, count.value)
  end
  if pause > 0 and record ~= '' then
    pcall_('SET', count.shown, record, 'EX', math.ceil(pause / 500))
  end
end

-- forget_count removes the count of a job that does not run again. Keys of other types are not ours.
function ends.forget_count(count)
  for _, key in ipairs({count.key, count.shown}) do
    if type(pcall_('GET', key)) == 'string' then pcall_('DEL', key) end
  end
end

function ends.unlock(token, lock)
  if lock == '' then return end
  release(lock, me .. token)
  released[#released + 1] = lock
end

function ends.stuck(e)
  if e.unread then return 'the record of ' .. e.token .. ' is not one of ours' end
  if e.kind == 'f' then
    local key = prefix .. e.list
    return notlist(key) or e.large and parked.obstacle(prefix) or nil
  elseif e.kind == 't' then
    return delayobstacle(prefix, e.queue, e.record and e.record.start ~= '-', ms + e.pause) or refused(query('GET', e.count.key)) and e.count.key .. ' is not a string' or nil
  elseif e.back then
    local wrong = queueobstacle(prefix .. 'queue:' .. e.queue, e.record and e.record.start ~= '-')
    if wrong then return wrong end
    if e.pause > 0 and type(query('ZCARD', prefix .. 'resqued:delayed')) ~= 'number' then return prefix .. 'resqued:delayed is not a sorted set' end
    return e.kept and parked.obstacle(prefix) or nil
  end
end

-- park keeps an end that cannot be written.
function ends.park(e, reason)
  local text = e.kind == 'f' and e.text or e.kind == 't' and e.sent or e.kind == 'b' and not ends.flag(e, 'o') and e.lock or ''
  parked.keep(prefix, proc .. '#' .. e.token, e.large and 'F' or e.kind, ms, e.queue, e.record.start, e.record.payload, reason, e.gap, text)
end

-- goback puts a job back for another run, now or after a pause, and returns its mark: u if it was dropped as a
-- duplicate.
function ends.goback(e)
  local record = e.record
  if e.pause > 0 and (e.kind == 't' or record) then setback(prefix, ms) end
  if not record then return '1' end
  local start = record.start
  if e.kind == 't' then
    return delay(prefix, e.queue, record.payload, start ~= '-', ms + e.pause, proc .. '#' .. e.token) == 'd' and 'u' or '1'
  end
  if e.pause > 0 then
    pcall_('SADD', prefix .. 'queues', e.queue)
    call('ZADD', prefix .. 'resqued:delayed', fmt('%.0f', ms + e.pause), delayed(proc .. '#' .. e.token, e.queue, record.payload, start ~= '-'))
    return '1'
  end
  if e.kept then
    record.payload = parked.payload(prefix, e.kept)
    parked.drop(prefix, e.kept)
  end
  local payload = e.kind == 'r' and e.text ~= '' and e.text or record.payload
  if e.kind == 'b' then
    -- At the head, which a call that knows the jobs behind it would skip.
    forget_seen(prefix, e.queue)
    -- It is next in its line. If its payload was kept, its lock is not the reference's.
    local other = e.kept or ends.flag(e, 'o')
    if line.known and line.known.lead(e.queue, payload, {other and '' or e.lock, unpack(e.gates)}) then return '1' end
  elseif start ~= '-' then
    start = fmt('%.0f', math.floor(ms / 1000))
  end
  return putback(prefix, e.queue, payload, start, e.kind == 'b') and '1' or 'u'
end

-- settle removes everything attached to the record of an ended job.
function ends.settle(e)
  if ends.flag(e, 'h') then drop_held(prefix, proc, e.token) end
  e.gates = {}
  if ends.flag(e, 'i') then slots.free(prefix, proc, e.token, e.gates) end
  for _, gate in ipairs(e.gates) do released[#released + 1] = gate end
  if ends.flag(e, 'k') then
    answer(prefix, proc, e.token, e.kind == 'd' and 'finished 0 0' or e.kind == 'f' and 'cancelled 0 0' or 'cancelled 1 0')
  end
  ends.unlock(e.token, e.lock)
  if ends.flag(e, 'c') then uncap(prefix, master, e.queue) end
  if e.worker ~= '' then call('DEL', prefix .. 'worker:' .. e.worker) end
  if e.deaths ~= '0' and e.record and (not e.back or ends.flag(e, 's')) then
    dead.forget(prefix, e.queue, e.record.payload)
  end
  if e.count and e.kind ~= 't' then ends.forget_count(e.count) end
end

function ends.finish(e)
  local stuck = ends.stuck(e)
  local parks = stuck and ends.flag(e, 'x') and e.record and not parked.obstacle(prefix)
  if stuck then reasons[#reasons + 1] = stuck end
  if stuck and not parks then return 'x' end
  if call('HDEL', inflight, e.token) == 0 then return '0' end
  ends.settle(e)
  -- Before the job itself: a process that finds it must find its count.
  if e.kind == 't' and not parks then ends.keep_count(e.count, e.text, e.pause) end
  if e.kind == 'f' or e.kind == 't' then ends.failed = ends.failed + 1 end
  if not e.back or e.kind == 't' then ends.processed = ends.processed + 1 end
  if parks then
    ends.park(e, stuck)
    return 'p'
  end
  if e.back then return ends.goback(e) end
  if e.kind == 'f' then parked.file(prefix, e.list, proc .. '#' .. e.token, ms, e.record, e.text, e.gap, e.large) end
  return '1'
end

function ends.all()
  limited = limited == 'i' and line.known -- otherwise see limits
  for c = 1, limited and nready or 0 do slots.free(prefix, proc, ARGV[plainat + c - 1], released) end
  for c = nready + 1, nplain do
    local token = ARGV[plainat + c - 1]
    applied[c] = '0'
    if call('HDEL', inflight, token) == 1 then
      applied[c], ends.processed = '1', ends.processed + 1
      if limited then slots.free(prefix, proc, token, released) end
      ends.unlock(token, c <= nlocks and ARGV[locksat + c - 1] or '')
    end
  end
  for c = 1, nother do applied[nplain + c] = ends.finish(ends.read(othersat + 9 * (c - 1))) end
  if ends.processed > 0 then pcall_('INCRBY', prefix .. 'stat:processed', ends.processed) end
  if ends.failed > 0 then pcall_('INCRBY', prefix .. 'stat:failed', ends.failed) end
end

ends.all()
local starved = not obstacles.calm and starving(prefix)
if starved then freed(prefix, released, ms) end
if line.known then
  line.known.freed(released, us, alltold and #released == nlocks and obstacles.some)
  if nwant == 0 then line.known.flush() end
end

reply[4] = table.concat(applied)
if nwant == 0 then return reply end
