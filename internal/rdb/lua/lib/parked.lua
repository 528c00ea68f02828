-- parked keeps data that cannot be written yet: the end of a job whose target key has the wrong type,
-- until that is repaired, and the payload of a failure record that would be too large to send. Ends of
-- other jobs do not wait for it.
--
-- resqued:parked is a hash. Its field "<proc>#<token>", the job's id, is
-- "1 <kind> <time, ms> <start> <gap> <lengths of queue, reason, text>\n<queue><reason><text>".
-- resqued:parked:<id> is the payload as pushed. Kind l is a payload to which a failure record refers, F if
-- that record waits, too, else the kind of a completion (f r t, b for the head of the queue) that waits for
-- its target: resqued:parking has its id and its next attempt. The text is a failure record without its
-- payload, which belongs after gap bytes unless gap is 0; for a t the count precedes it. For a b the text
-- is the lock that the job had.
--
-- DEFINES  parked.obstacle(prefix): what is in the way of keep, or nil; parked.keep(prefix, id,
--          kind, ms, queue, start, payload, reason, gap, text), parked.drop(prefix, id): no
--          result; parked.payload(prefix, id): a payload or nil; parked.whole(record, gap,
--          payload): a record; parked.gapped(text): gap, record;
--          parked.listed(prefix, queue): name of a list of failures; parked.fail(prefix, list, record): no result;
--          parked.file(prefix, list, id, ms, job, record, gap, large): likewise for a job's record without its payload
-- NEEDS    base, records
-- KEYS     reads and writes those above; listed reads failed_queues and <queue>_failed
-- COST     obstacle, listed: 2 commands; keep: 2 or 3; drop: 3; payload: 2; fail: 1 or 2; O(bytes of the payload)

local parked = {}

-- obstacle says which key has a type that keep cannot write to, or returns nil.
function parked.obstacle(prefix)
  local key, parking = prefix .. 'resqued:parked', prefix .. 'resqued:parking'
  if type(query('HLEN', key)) ~= 'number' then return key .. ' is not a hash' end
  if type(query('ZCARD', parking)) ~= 'number' then return parking .. ' is not a sorted set' end
end

function parked.keep(prefix, id, kind, ms, queue, start, payload, reason, gap, text)
  call('SET', prefix .. 'resqued:parked:' .. id, payload)
  call('HSET', prefix .. 'resqued:parked', id,
    fmt('1 %s %.0f %s %d %d %d %d\n', kind, ms, start, gap, #queue, #reason, #text) .. queue .. reason .. text)
  if kind ~= 'l' then call('ZADD', prefix .. 'resqued:parking', fmt('%.0f', ms), id) end
end

function parked.drop(prefix, id)
  call('DEL', prefix .. 'resqued:parked:' .. id)
  call('HDEL', prefix .. 'resqued:parked', id)
  call('ZREM', prefix .. 'resqued:parking', id)
end

function parked.payload(prefix, id)
  if type(pcall_('HGET', prefix .. 'resqued:parked', id)) ~= 'string' then return nil end
  local payload = pcall_('GET', prefix .. 'resqued:parked:' .. id)
  return type(payload) == 'string' and payload or nil
end

-- whole inserts the payload into a record.
function parked.whole(record, gap, payload)
  if gap == 0 then return record end
  return sub(record, 1, gap) .. payload .. sub(record, gap + 1)
end

-- gapped reads the gap before a record.
function parked.gapped(text)
  local gap, at = match(text, '^(%d+)\n()')
  return tonumber(gap), sub(text, at)
end

-- listed returns the list to which Resque's multi-queue failure backend adds a queue's failures; failed if
-- that key is used otherwise.
function parked.listed(prefix, queue)
  if find(queue, '^queue:') or find(queue, '^resqued:') then return 'failed' end
  local list, set = queue .. '_failed', prefix .. 'failed_queues'
  if type(pcall_('SCARD', set)) ~= 'number' or not len(prefix .. list) then return 'failed' end
  return list
end

function parked.fail(prefix, list, record)
  if list ~= 'failed' then call('SADD', prefix .. 'failed_queues', list) end
  call('RPUSH', prefix .. list, record)
end

-- file adds the failure of a job, a record of records; large: its payload is kept, as the failure refers to it.
function parked.file(prefix, list, id, ms, job, record, gap, large)
  if large then
    parked.keep(prefix, id, 'l', ms, job.queue, job.start, job.payload, 'too large for its failure record', 0, '')
  end
  parked.fail(prefix, list, gap > 0 and parked.whole(record, gap, job.payload) or record)
end
