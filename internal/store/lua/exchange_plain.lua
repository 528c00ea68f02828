-- exchange_plain ends jobs that have succeeded and left only a record and a lock, together if possible. A part of
-- exchange; see exchange_fast.
--
-- DEFINES  nready: how many of the plain completions it has ended; alltold: whether each was the first of its record,
--          else applied has the marks of the completions; released: the locks of the applied ones; info, repeated
-- NEEDS    all parts before it
-- COST     2 to 5 commands for all completions together, and 2 per lock that is not removed with the others

-- A call that may not take the fast path has more to check before the first write.
local nready = fastpath and nplain or 0

-- ours reports whether these jobs still hold all their locks. A job that holds its lock was not recovered, so its
-- record need not be checked.
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

local alltold, applied, released, processed = true, {}, {}, nready
if nready == 1 then
  alltold = size == 1
  if not alltold then
    applied[1], processed = '0', 0
  elseif nlocks == 1 then
    -- The code below may hand over its lock.
    released.kept = pcall_('GET', ARGV[locksat]) == me .. ARGV[plainat]
  end
elseif nready > 1 then
  -- there maps each token with a record to its first completion.
  local there = {}
  if fast then
    alltold = size == nready -- otherwise a record had two
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

-- A repeated request may overtake the original. The original's tokens are then used up, so no thread would run
-- the jobs that it takes now.
local info, repeated = prefix .. 'resqued:proc:' .. proc, lane == '0' and 'repeated' or 'repeated1'
if nwant > 0 then
  local last = pcall_('HGET', info, repeated)
  if last and (tonumber(last) or 0) > tonumber(sending) then nwant = 0 end
end
