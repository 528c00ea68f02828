-- grace knows when leases may not be judged.

-- beaten notes a beat. After a gap without any (an outage,
-- a failover, a jump of the clock) no lease may be judged for one whole lease:
-- the silence was not the fault of those who were silent.
--
-- Nor may locks be given that have expired in it: where the clock has gone forward their
-- holders know nothing of that. resqued:relock has the processes whose locks have to be
-- looked at first (see relock.lua); while it is there exchange and acquire give no locks.
local function beaten(prefix, ms, lease, every)
  local key = prefix .. 'resqued:meta'
  local last = tonumber(call('HGET', key, 'beat') or 0)
  if last and last > 0 and (ms - last > every * 1.5 or ms < last - every) then
    call('HSET', key, 'grace', fmt('%.0f', ms + lease))
    if ms > last then
      call('ZUNIONSTORE', prefix .. 'resqued:relock', 1, prefix .. 'resqued:procs')
      call('PEXPIRE', prefix .. 'resqued:relock', lease)
    else
      -- The clock was set back. Jobs that run again after a pause wait for that pause, and
      -- not until a time: that is so much earlier now.
      local own = prefix .. 'resqued:delayed'
      local some = pcall_('ZRANGEBYSCORE', own, fmt('%.0f', last), '+inf', 'WITHSCORES', 'LIMIT', 0, 10000)
      for i = 1, some.err and 0 or #some, 2 do
        if match(some[i], '^[^ #]*:[^ #]*#') and not match(some[i], '^later:') and not match(some[i], '^stuck:') then
          call('ZADD', own, 'XX', fmt('%.0f', tonumber(some[i + 1]) - (last - ms)), some[i])
        end
      end
    end
  end
  call('HSET', key, 'beat', fmt('%.0f', ms))
end

-- unjudged reports whether leases may not be judged now. It notes a gap in which none has
-- beaten, once.
local function unjudged(prefix, ms, lease, every)
  local key = prefix .. 'resqued:meta'
  local last = tonumber(call('HGET', key, 'beat') or 0)
  if last and last > 0 and ms - last > every * 1.5 then
    call('PERSIST', key) -- see register: a full server must not refuse the rest
    beaten(prefix, ms, lease, every)
  end
  local grace = tonumber(call('HGET', key, 'grace') or 0) or 0
  -- One that ends in a day was given by no beat, and would keep the jobs of the dead for good.
  return grace > ms and grace - ms < math.max(2 * lease, 86400000)
end
