-- longjob_tenants shares the threads among the tenants of long jobs.
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

-- A run may belong to a tenant. Some of the runs of one tenant have a slice in a queue or in hand:
-- those in the set busy. The others stand in line, a sorted set in the order of their turns, and
-- their payloads are nowhere. One whose slice waits for some time is in neither.
--
-- The class says how many may be busy. Without a number, one slice of the tenant waits in a
-- queue at a time, and the next one is pushed when that begins: so a tenant that is alone comes to use
-- all threads. The tenants of whom a slice waits are hungry, with the number of those that run. A
-- slice does not begin where a hungrier tenant than its own could be served instead: it steps
-- back to the front of the line, and gets its turn when a slice of any tenant has begun, or one of its
-- own tenant has ended. If none of either runs, and the last slice that began was one of its tenant,
-- it goes to the end of its queue, once.

local function busykey(prefix, tenant) return prefix .. 'resqued:longjob:busy:' .. tenant end
local function linekey(prefix, tenant) return prefix .. 'resqued:longjob:line:' .. tenant end
local function tenantskey(prefix) return prefix .. 'resqued:longjob:tenants' end -- tenant → last look at it, ms
local function nextkey(prefix) return prefix .. 'resqued:longjob:next' end -- tenant → the run whose slice waits; '' → who began last
local function hungrykey(prefix) return prefix .. 'resqued:longjob:hungry' end -- tenant → slices that run, if one waits
local function steppedkey(prefix) return prefix .. 'resqued:longjob:stepped' end -- tenants who have stepped back
local function shareskey(prefix) return prefix .. 'resqued:longjob:shares' end -- class → slices of one tenant

-- needtenant is needlong for what belongs to a tenant; '' and nil are none.
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

-- share returns how many slices of a tenant there may be for another one of a class to join
-- them, nil = as there is room. told is what the class says, 'a' for that, '' if the caller does not
-- know; the second result: that is not as before.
local function share(prefix, class, told)
  local known = call('HGET', shareskey(prefix), class) or 'a'
  if told == '' or told == known then return tonumber(known), false end
  call('HSET', shareskey(prefix), class, told)
  return tonumber(told), true
end

local counted = {}

-- holders counts the runs of a tenant that have a slice. If they are enough, those are taken
-- out that have ended, and whose code has: one that was cancelled may run for a moment yet.
local function holders(prefix, tenant, enough)
  local busy = busykey(prefix, tenant)
  if call('SCARD', busy) >= enough and not counted[tenant] then
    counted[tenant] = true
    -- Of very many a part, another each time.
    for _, id in ipairs(call('SRANDMEMBER', busy, 1000)) do
      local v = call('HMGET', runkey(prefix, id), 'status', 'owner', 'tenant')
      if v[3] ~= tenant or not active(v[1]) and not recorded(prefix, v[2] or '') then call('SREM', busy, id) end
    end
  end
  return call('SCARD', busy)
end

-- waits returns the run of a tenant whose slice waits in a queue, and that queue.
local function waits(prefix, tenant)
  local id = call('HGET', nextkey(prefix), tenant)
  if not id then return nil end
  local v = call('HMGET', runkey(prefix, id), 'status', 'tenant', 'queue', 'paused')
  if v[1] == 'queued' and v[2] == tenant and not v[4] and call('SISMEMBER', busykey(prefix, tenant), id) == 1 then return id, v[3] end
  call('HDEL', nextkey(prefix), tenant)
  return nil
end

-- weigh notes how hungry a tenant is.
local function weigh(prefix, tenant)
  if waits(prefix, tenant) then
    call('ZADD', hungrykey(prefix), fmt('%d', call('SCARD', busykey(prefix, tenant)) - 1), tenant)
  else
    call('ZREM', hungrykey(prefix), tenant)
  end
end

-- outweighed returns 'more' if a slice waits of a tenant of whom fewer run, in one of the queues from
-- which the thread that asks takes its jobs: ',a,b,', or '' for any; and 'next' if one waits of
-- a tenant of whom none runs either, and this tenant has had the last turn.
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
        -- Those count that run still, not those that have ended untold.
        runs = holders(prefix, tenant, 0) - 1
        return runs > others and 'more' or last and runs == others and 'next' or nil
      end
    end
  end
  return nil
end

-- stepback puts a run to the front of the line of its tenant.
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

-- stand puts a run at the end of the line of its tenant, if it does not stand there.
local function stand(prefix, tenant, id, ms)
  local line = linekey(prefix, tenant)
  call('SREM', busykey(prefix, tenant), id)
  call('ZADD', tenantskey(prefix), 'NX', fmt('%.0f', ms), tenant)
  if call('ZSCORE', line, id) then return end
  local last = call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2]
  call('ZADD', line, fmt('%.0f', math.max(ms * 1000, tonumber(last or 0) + 1)), id)
end

-- pushable reports whether a slice can be put into a queue.
local function pushable(prefix, queue)
  local key = prefix .. 'queue:' .. queue
  return len(key) and utyped(key)
end

local function slicepayload(id, name, slice) return '{"class":' .. name .. ',"args":["' .. id .. '"],"id":"' .. id .. '.' .. slice .. '"}' end

-- turn pushes the slices of the first ones in line, as long as there is room for them. One
-- whose queue takes none is passed over, for now. A hundred of those would hide all behind
-- them, and go to the end.
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

-- wake gives some of the tenants their turn who have stepped back.
local function wake(prefix, ms)
  for _, tenant in ipairs(call('SRANDMEMBER', steppedkey(prefix), 10)) do
    call('SREM', steppedkey(prefix), tenant)
    if counts('SCARD', busykey(prefix, tenant)) and counts('ZCARD', linekey(prefix, tenant)) then turn(prefix, tenant, ms) end
  end
end

-- giveup takes the slice of a run, or its place in line, from it.
local function giveup(prefix, tenant, id, ms)
  call('SREM', busykey(prefix, tenant), id)
  call('ZREM', linekey(prefix, tenant), id)
  turn(prefix, tenant, ms)
end

-- queueslice pushes the next slice of a run when it is its turn.
local function queueslice(prefix, id, tenant, queue, payload, ms)
  if not tenant or tenant == '' then return append(prefix, queue, payload, ms) end
  stand(prefix, tenant, id, ms)
  turn(prefix, tenant, ms)
end
