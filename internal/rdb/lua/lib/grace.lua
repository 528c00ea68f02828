-- grace knows when leases may not be judged. resqued:meta holds the last beat of any process, the end
-- of the grace period, and the paces at which processes beat.
--
-- DEFINES  beaten(prefix, ms, lease, every, looks): notes a beat, no result; setback(prefix, ms): no result;
--          unjudged(prefix, ms, lease, every): whether leases may not be judged now;
--          paced(prefix, lease, every): how the fleet beats, see there
-- NEEDS    base
-- KEYS     reads and writes resqued:meta; after a silence writes resqued:relock from
--          resqued:procs; where the clock was set back moves members of resqued:delayed and resqued:limit:due
-- COST     beaten: 2 commands; unjudged, setback: 1; after a silence 5 more, O(processes), or where the
--          clock was set back 1, and 1 for each of up to 10,000 delayed jobs

-- paced reads how the fleet beats. Daemons may differ in lease and interval: paces in resqued:meta has
-- one entry "<lease>:<interval>:<last beat>" (ms) for each combination. It returns the last beat of
-- any process and the end of the grace period, 0 if missing; the shortest interval and the longest
-- lease of the processes alive at that beat, or the caller's own if unknown; and the entries.
local function paced(prefix, lease, every)
  local v = call('HMGET', prefix .. 'resqued:meta', 'beat', 'grace', 'paces')
  local last, shortest, longest, paces = tonumber(v[1] or 0) or 0, nil, nil, {}
  for l, e, at in string.gmatch(v[3] or '', '(%d+):(%d+):(%d+)') do
    l, e, at = tonumber(l), tonumber(e), tonumber(at)
    if l and e and at and e > 0 and l < 86400000 then -- else another program wrote it
      if at + l >= last then shortest, longest = math.min(shortest or e, e), math.max(longest or l, l) end
      paces[#paces + 1] = {l, e, at}
    end
  end
  return last, tonumber(v[2] or 0) or 0, shortest or every, longest or lease, paces
end

-- beaten notes a beat. After a gap in all beats (an outage, a failover, a clock jump), no lease may be
-- judged for the longest lease: the processes could not help their silence. A process that only
-- looks has no lease.
--
-- Locks that expired in the gap must not be given away either: if the clock jumped forward, their
-- holders do not know. resqued:relock holds the processes whose locks must be checked first (see
-- relock); while it exists, exchange and classlock_acquire give no locks.
local function beaten(prefix, ms, lease, every, looks)
  local key = prefix .. 'resqued:meta'
  local last, _, shortest, longest, paces = paced(prefix, lease, every)
  if last > 0 and (ms - last > shortest * 1.5 or ms < last - shortest) then
    -- Without the right to set an expiry, write nothing: resqued:relock could block all locks for good.
    if ms > last then call('PEXPIRE', prefix .. 'resqued:relock', fmt('%.0f', longest)) end
    call('HSET', key, 'grace', fmt('%.0f', ms + longest))
    if ms > last then
      call('ZUNIONSTORE', prefix .. 'resqued:relock', 1, prefix .. 'resqued:procs')
      call('PEXPIRE', prefix .. 'resqued:relock', fmt('%.0f', longest))
    else
      -- The clock was set back. Jobs in a pause before their next run wait for a duration, not until a
      -- time, so they are due that much earlier.
      local own = prefix .. 'resqued:delayed'
      local some = pcall_('ZRANGEBYSCORE', own, fmt('%.0f', last), '+inf', 'WITHSCORES', 'LIMIT', 0, 10000)
      for i = 1, some.err and 0 or #some, 2 do
        if match(some[i], '^[^ #]*:[^ #]*#') and not match(some[i], '^later:') and not match(some[i], '^stuck:') then
          call('ZADD', own, 'XX', fmt('%.0f', tonumber(some[i + 1]) - (last - ms)), some[i])
        end
      end
      -- Jobs that wait for a rate are tried now; limit then computes their time anew.
      pcall_('ZUNIONSTORE', prefix .. 'resqued:limit:due', 1, prefix .. 'resqued:limit:due', 'WEIGHTS', '0')
    end
  end
  -- Drop entries older than a day, and cut times in the future, which come from before a clock was set back.
  local texts = {}
  for _, p in ipairs(paces) do
    if #texts < 16 and p[3] > ms - 86400000 and (looks or p[1] ~= lease or p[2] ~= every) then
      texts[#texts + 1] = fmt('%.0f:%.0f:%.0f', p[1], p[2], math.min(p[3], ms))
    end
  end
  if not looks then table.insert(texts, 1, fmt('%.0f:%.0f:%.0f', lease, every, ms)) end
  call('HSET', key, 'beat', fmt('%.0f', ms), 'paces', table.concat(texts, ' '))
end

-- setback notes a beat if the clock was set back since the last one. It is called before a pause
-- begins, so that beaten does not shorten that pause along with older ones.
local function setback(prefix, ms)
  local last = pcall_('HGET', prefix .. 'resqued:meta', 'beat')
  if type(last) == 'string' and ms < (tonumber(last) or 0) then beaten(prefix, ms, 35000, 10000, true) end
end

-- unjudged reports whether leases may not be judged now. It notes a gap in all beats, once.
local function unjudged(prefix, ms, lease, every)
  local last, grace, shortest, _ = paced(prefix, lease, every)
  if last > 0 and ms - last > shortest * 1.5 then
    call('PERSIST', prefix .. 'resqued:meta') -- see register: a full server must not reject the rest
    beaten(prefix, ms, lease, every, true)
    _, grace = paced(prefix, lease, every)
  end
  -- A grace period longer than a day was not set by a beat, and would keep the jobs of the dead for good.
  return grace > ms and grace - ms < math.max(2 * lease, 86400000)
end
