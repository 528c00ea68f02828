-- exchange_plain ends jobs that have ended well, of which nothing but the record and the lock is left, all
-- together where that can be. A part of exchange; see exchange_fast.
--
-- DEFINES  nready: how many of the plain completions it has ended; alltold: whether each was the first one of its
--          record, else applied has the marks of the completions; released: the locks of those that were applied;
--          info, repeated
-- NEEDS    all parts before it
-- COST     2 to 5 commands for all completions together, and 2 per lock that is not removed with the others

-- A call that may not take the fast path has more to ask before the first write.
local nready = fastpath and nplain or 0

-- ours reports whether all locks are still held for these jobs. A job that holds its lock has
-- not been recovered: then which of the records are there need not be asked.
local ours = nready > 1 and nlocks > 0
if ours then
  local values = pcall_('MGET', unpack(ARGV, locksat, othersat - 1))
  for c = 1, nlocks do
    if values[c] ~= me .. ARGV[plainat + c - 1] then
      ours = false
      break
    end
  end
end
local fast = ours and nlocks == nready
local size
if nready == 1 or fast then
  size = query('HDEL', inflight, unpack(ARGV, plainat, plainat + nready - 1))
else
  size = query('HLEN', inflight)
end
if type(size) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. inflight .. ' is not a hash; move it away')
end

-- alltold: each completion was the first one of its record. If not, applied
-- are the marks of the completions, released the locks of those that were applied.
local alltold, applied, released, processed = true, {}, {}, nready
if nready == 1 then
  alltold = size == 1
  if not alltold then
    applied[1], processed = '0', 0
  elseif nlocks == 1 then
    -- Its lock may be handed over below.
    released.kept = pcall_('GET', ARGV[locksat]) == me .. ARGV[plainat]
  end
elseif nready > 1 then
  -- there has, for each token that had a record, which completion was the first.
  local there = {}
  if fast then
    alltold = size == nready -- or a record had two
    for c = nready, alltold and nready + 1 or 1, -1 do there[ARGV[plainat + c - 1]] = c end
  elseif size > 8 * nready then
    for c = 1, nready do
      local token = ARGV[plainat + c - 1]
      if call('HDEL', inflight, token) == 1 then there[token] = c else alltold = false end
    end
  else
    for _, token in ipairs(call('HKEYS', inflight)) do there[token] = true end
    for c = 1, nready do
      local token = ARGV[plainat + c - 1]
      if there[token] == true then there[token] = c else alltold = false end
    end
    call('HDEL', inflight, unpack(ARGV, plainat, plainat + nready - 1))
  end
  local together = ours and (fast or alltold)
  if together then call('DEL', unpack(ARGV, locksat, othersat - 1)) end
  if not (together and alltold) then
    processed = 0
    for c = 1, nready do
      local token = ARGV[plainat + c - 1]
      applied[c] = '0'
      if there[token] == c then
        applied[c], processed = '1', processed + 1
        if c <= nlocks then
          local lock = ARGV[locksat + c - 1]
          released[#released + 1] = lock
          if not together then release(lock, me .. token) end
        end
      end
    end
  end
end
if processed > 0 then pcall_('INCRBY', prefix .. 'stat:processed', processed == 1 and '1' or fmt('%d', processed)) end

-- A request whose answer did not come may still have been under way when it was repeated. Its tokens are used
-- up, so no thread would run the jobs that it popped now.
local info, repeated = prefix .. 'resqued:proc:' .. proc, lane == '0' and 'repeated' or 'repeated1'
if nwant > 0 then
  local last = pcall_('HGET', info, repeated)
  if last and (tonumber(last) or 0) > tonumber(sending) then nwant = 0 end
end
