-- longjob_tenants shares threads among the tenants of long jobs.
--
-- DEFINES  tenantskey, shareskey (prefix), busykey, linekey (prefix, tenant): keys;
--          needtenant(prefix, tenant): ends the script where a key is in the way;
--          share(prefix, class, told): slices a tenant may have, whether that is new;
--          holders(prefix, tenant, enough): how many it has;
--          outweighed(prefix, tenant, queues): 'more', 'next' or nil; stepback, hold, stand, giveup (prefix,
--          tenant, id, ms), turn(prefix, tenant, ms), wake(prefix, ms),
--          queueslice(prefix, id, tenant, queue, payload, ms): no result
-- NEEDS    base, records, unique, append, longjob
-- KEYS     reads and writes resqued:longjob:*, pushes to queue:<q> as append does
-- COST     needtenant: about 6 commands; turn: 8, and about 10 for each slice that it pushes, or 2
--          for one that it passes by, of 300 at most; holders: 1, once a script 2 for each of up to
--          1,000 runs; outweighed: 1, or 2 and up to 4 for each of 50 tenants; wake: 1, or that of
--          turn for 10 tenants

-- A run may belong to a tenant. Some runs of a tenant have a slice in a queue or in hand: the set busy. The
-- others are in line, a sorted set ordered by turn, and their payloads are nowhere. A run whose slice is
-- delayed is in neither.
--
-- The class says how many may be busy. Without a number, one slice of the tenant waits in a queue at a time,
-- and the next is pushed when it begins, so a lone tenant gets all threads. A tenant with a waiting slice is
-- hungry, with the number of its running slices. A slice does not begin if a hungrier tenant could be served
-- instead: it steps back to the front of the line, and gets its turn when a slice of any tenant begins, or one
-- of its own tenant ends. If neither tenant has running slices, and its tenant began the last slice, it goes
-- to the end of its queue, once.

local function busykey(prefix, tenant) return prefix .. 'resqued:longjob:busy:' .. tenant end
local function linekey(prefix, tenant) return prefix .. 'resqued:longjob:line:' .. tenant end
local function tenantskey(prefix) return prefix .. 'resqued:longjob:tenants' end -- tenant → last look at it, ms
local function nextkey(prefix) return prefix .. 'resqued:longjob:next' end -- tenant → the run whose slice waits; '' → the tenant that began last
local function hungrykey(prefix) return prefix .. 'resqued:longjob:hungry' end -- tenant with a waiting slice → its running slices
local function steppedkey(prefix) return prefix .. 'resqued:longjob:stepped' end -- tenants that have stepped back
local function shareskey(prefix) return prefix .. 'resqued:longjob:shares' end -- class → slices of one tenant

-- needtenant is needlong for a tenant's keys; '' and nil mean no tenant.
local function needtenant(prefix, tenant)
  if not tenant or tenant == '' then return end
  local busy, line = busykey(prefix, tenant), linekey(prefix, tenant)
  if not counts('SCARD', busy) then fail('RESQUEDTYPE ' .. busy .. ' is not a set; move it away') end
  if not counts('SCARD', steppedkey(prefix)) then fail('RESQUEDTYPE ' .. steppedkey(prefix) .. ' is not a set; move it away') end
  for _, key in ipairs({line, tenantskey(prefix), hungrykey(prefix)}) do
    if not counts('ZCARD', key) then fail('RESQUEDTYPE ' .. key .. ' is not a sorted set; move it away') end
  end
  needhash(shareskey(prefix))
  needhash(nextkey(prefix))
end

-- share returns below how many slices of a tenant another one of a class may join; nil = as there is room.
-- told is the class's setting, 'a' for nil, '' if the caller does not know it; the second result: it is new.
local function share(prefix, class, told)
  local known = call('HGET', shareskey(prefix), class) or 'a'
  if told == '' or told == known then return tonumber(known), false end
  call('HSET', shareskey(prefix), class, told)
  return tonumber(told), true
end

local counted = {}

-- holders counts a tenant's runs with a slice. If they are enough, it removes runs that have ended along with
-- their code: a cancelled one may still run for a moment.
local function holders(prefix, tenant, enough)
  local busy = busykey(prefix, tenant)
  if call('SCARD', busy) >= enough and not counted[tenant] then
    counted[tenant] = true
    -- Of very many, each call checks a different part.
    for _, id in ipairs(call('SRANDMEMBER', busy, 1000)) do
      local v = call('HMGET', runkey(prefix, id), 'status', 'owner', 'tenant')
      if v[3] ~= tenant or not active(v[1]) and not recorded(prefix, v[2] or '') then call('SREM', busy, id) end
    end
  end
  return call('SCARD', busy)
end

-- waits returns the run whose slice waits in a queue for a tenant, and that queue.
local function waits(prefix, tenant)
  local id = call('HGET', nextkey(prefix), tenant)
  if not id then return nil end
  local v = call('HMGET', runkey(prefix, id), 'status', 'tenant', 'queue', 'paused')
  if v[1] == 'queued' and v[2] == tenant and not v[4] and call('SISMEMBER', busykey(prefix, tenant), id) == 1 then return id, v[3] end
  call('HDEL', nextkey(prefix), tenant)
  return nil
end

-- weigh updates how hungry a tenant is.
local function weigh(prefix, tenant)
  if waits(prefix, tenant) then
    call('ZADD', hungrykey(prefix), fmt('%d', call('SCARD', busykey(prefix, tenant)) - 1), tenant)
  else
    call('ZREM', hungrykey(prefix), tenant)
  end
end

-- outweighed returns 'more' if a slice of a tenant with fewer running slices waits in one of the caller's
-- queues: ',a,b,', or '' for any. It returns 'next' if neither tenant has running slices and this one had the
-- last turn.
local function outweighed(prefix, tenant, queues)
  local runs = call('SCARD', busykey(prefix, tenant)) - 1
  local last = runs < 1 and call('HGET', nextkey(prefix), '') == tenant
  if runs < 1 and not last then return nil end
  local list = call('ZRANGE', hungrykey(prefix), 0, 49, 'WITHSCORES')
  for i = 1, #list, 2 do
    local others = tonumber(list[i + 1])
    if others > runs or others == runs and not last then return nil end
    if list[i] ~= tenant then
      local id, queue = waits(prefix, list[i])
      if not id then
        call('ZREM', hungrykey(prefix), list[i])
      elseif (queues == '' or find(queues, ',' .. queue .. ',', 1, true)) and pcall_('EXISTS', prefix .. 'pause:queue:' .. queue) ~= 1 then
        -- Count only slices that still run, as some end without notice.
        runs = holders(prefix, tenant, 0) - 1
        return runs > others and 'more' or last and runs == others and 'next' or nil
      end
    end
  end
  return nil
end

-- stepback moves a run to the front of its tenant's line.
local function stepback(prefix, tenant, id, ms)
  local line = linekey(prefix, tenant)
  call('SREM', busykey(prefix, tenant), id)
  local first = call('ZRANGE', line, 0, 0, 'WITHSCORES')[2]
  call('ZADD', line, fmt('%.0f', first and tonumber(first) - 1 or ms * 1000), id)
  call('ZADD', tenantskey(prefix), 'NX', fmt('%.0f', ms), tenant)
  call('SADD', steppedkey(prefix), tenant)
  weigh(prefix, tenant)
end

local function hold(prefix, tenant, id, ms)
  call('ZREM', linekey(prefix, tenant), id)
  call('SADD', busykey(prefix, tenant), id)
  call('ZADD', tenantskey(prefix), 'NX', fmt('%.0f', ms), tenant)
end

-- stand puts a run at the end of its tenant's line, unless it is in the line.
local function stand(prefix, tenant, id, ms)
  local line = linekey(prefix, tenant)
  call('SREM', busykey(prefix, tenant), id)
  call('ZADD', tenantskey(prefix), 'NX', fmt('%.0f', ms), tenant)
  if call('ZSCORE', line, id) then return end
  local last = call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2]
  call('ZADD', line, fmt('%.0f', math.max(ms * 1000, tonumber(last or 0) + 1)), id)
end

local function pushable(prefix, queue)
  local key = prefix .. 'queue:' .. queue
  return len(key) and utyped(key)
end

local function slicepayload(id, name, slice) return '{"class":' .. name .. ',"args":["' .. id .. '"],"id":"' .. id .. '.' .. slice .. '"}' end

-- turn pushes the slices of the first runs in line while there is room. A run whose queue is not writable is
-- skipped for now. A hundred such runs would hide all others, so they move to the end.
local function turn(prefix, tenant, ms)
  local line, takes = linekey(prefix, tenant), {}
  for _ = 1, 3 do
    local passed = {}
    for _, id in ipairs(call('ZRANGE', line, 0, 99)) do
      local v = call('HMGET', runkey(prefix, id), 'status', 'tenant', 'class', 'queue', 'slice', 'name')
      if not active(v[1]) or v[2] ~= tenant then
        call('ZREM', line, id)
      else
        local room = share(prefix, v[3], '')
        if room and holders(prefix, tenant, room) >= room or not room and waits(prefix, tenant) then break end
        if takes[v[4]] == nil then takes[v[4]] = pushable(prefix, v[4]) end
        if takes[v[4]] then
          hold(prefix, tenant, id, ms)
          append(prefix, v[4], slicepayload(id, v[6], v[5]), ms)
          call('HSET', nextkey(prefix), tenant, id)
        else
          passed[#passed + 1] = id
        end
      end
    end
    if #passed < 100 or call('ZCARD', line) <= 100 then break end
    local last = tonumber(call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2])
    for i, id in ipairs(passed) do call('ZADD', line, fmt('%.0f', last + i), id) end
  end
  weigh(prefix, tenant)
  if call('ZCARD', line) == 0 and call('SCARD', busykey(prefix, tenant)) == 0 then
    call('ZREM', tenantskey(prefix), tenant)
    call('SREM', steppedkey(prefix), tenant)
    if call('HGET', nextkey(prefix), '') == tenant then call('HDEL', nextkey(prefix), '') end
  end
end

-- wake gives turns to some tenants that have stepped back.
local function wake(prefix, ms)
  for _, tenant in ipairs(call('SRANDMEMBER', steppedkey(prefix), 10)) do
    call('SREM', steppedkey(prefix), tenant)
    if counts('SCARD', busykey(prefix, tenant)) and counts('ZCARD', linekey(prefix, tenant)) then turn(prefix, tenant, ms) end
  end
end

-- giveup takes a run's slice, or its place in line.
local function giveup(prefix, tenant, id, ms)
  call('SREM', busykey(prefix, tenant), id)
  call('ZREM', linekey(prefix, tenant), id)
  turn(prefix, tenant, ms)
end

-- queueslice pushes the next slice of a run when it has its turn.
local function queueslice(prefix, id, tenant, queue, payload, ms)
  if not tenant or tenant == '' then return append(prefix, queue, payload, ms) end
  stand(prefix, tenant, id, ms)
  turn(prefix, tenant, ms)
end
