-- longjob is what the scripts of long jobs share. A run is a hash
-- resqued:longjob:run:<uuid>, what it remembers from slice to slice a hash
-- resqued:longjob:state:<uuid>. Each slice has its own payload, which carries the number
-- of the slice: of all payloads of a run one alone counts, so that one which comes back
-- after its slice has ended is known for what it is.
--
-- owner names the in-flight record under which a slice runs. Recovery takes the record
-- and puts the payload back in one step; so as long as there is a record a process runs
-- the slice, or will be found dead, and once there is none no process does.
--
-- A run may belong to a tenant; see busykey.
--
-- DEFINES  runkey, statekey, sliceskey (prefix, uuid), currentkey, activekey, endedkey, tenantskey, shareskey
--          (prefix), busykey, linekey (prefix, tenant), subjectskey, startskey (prefix, class):
--          keys; active(status), recorded(prefix, owner), leased(prefix, proc, ms),
--          counts(command, key): yes or no; needhash(key), needlong(prefix, id, queue),
--          needtenant(prefix, tenant): end the script where something is in the way;
--          share(prefix, class, told): slices a tenant may have, whether that is new;
--          holders(prefix, tenant, enough): how many it has;
--          outweighed(prefix, tenant, queues): 'more', 'next' or nil; stepback, hold, stand, giveup (prefix,
--          tenant, id, ms), turn(prefix, tenant, ms), wake(prefix, ms), queueslice(prefix, id, tenant, queue, payload, ms): no result;
--          noteslice(prefix, id, ms, outcome, name, started, before), park(prefix, id, tenant, ms): no result;
--          ofsubject(prefix, id, class, kind): yes or no; behind(prefix, id): an owner or nil;
--          addrun(prefix, id, kind, class, args, queue, again, tenant, payload, ms),
--          endrun(prefix, id, status, keep, ms), displace(prefix, id, keep, ms): no result
-- NEEDS    base, records, rights, unique, append
-- KEYS     reads and writes resqued:longjob:*, reads resqued:inflight:* and resqued:procs, pushes
--          to queue:<q> as append does
-- COST     needlong, needtenant: about 6 commands each; addrun: about 15; endrun: 7; turn: 8, and
--          about 10 for each slice that it pushes, or 2 for one that it passes by, of 300 at
--          most; holders: 1, once a script 2 for each of up to 1,000 runs; outweighed: 1, or 2 and
--          up to 4 for each of 50 tenants; wake: 1, or that of turn for 10 tenants

local function runkey(prefix, id) return prefix .. 'resqued:longjob:run:' .. id end
local function statekey(prefix, id) return prefix .. 'resqued:longjob:state:' .. id end
local function sliceskey(prefix, id) return prefix .. 'resqued:longjob:slices:' .. id end
local function currentkey(prefix) return prefix .. 'resqued:longjob:current' end -- kind → newest run
local function activekey(prefix) return prefix .. 'resqued:longjob:active' end -- run → last sign of life, ms
local function endedkey(prefix) return prefix .. 'resqued:longjob:ended' end -- run → when it is forgotten, ms
local function subjectskey(prefix, class) return prefix .. 'resqued:longjob:subjects:' .. class end -- see recur
local function startskey(prefix, class) return prefix .. 'resqued:longjob:starts:' .. class end -- runs of subjects

local function active(status) return status == 'queued' or status == 'running' end

-- recorded reports whether the in-flight record of an owner exists.
local function recorded(prefix, name)
  local p, t = match(name, '^resqued:(.*)#([^#]*)$')
  return p and call('HEXISTS', prefix .. 'resqued:inflight:' .. p, t) == 1
end

-- leased reports whether a process has a lease that is not past.
local function leased(prefix, proc, ms)
  local lease = tonumber(query('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
  return lease and lease >= ms
end

local function counts(command, key) return type(query(command, key)) == 'number' end

-- fail ends the script with an error. Before Redis 7 that can be a text only, in front of which
-- the server says where it was raised; the dash, which begins what a refused call is answered
-- there, lets resqued find it.
local function fail(text)
  error(redis.acl_check_cmd and redis.error_reply(text) or '-' .. text, 0)
end

-- needhash ends the script unless something is a hash, or is not there.
local function needhash(key)
  if not counts('HLEN', key) then fail('RESQUEDTYPE ' .. key .. ' is no hash; move it away') end
end

-- noteslice notes, for people, a slice that ended at ms with some outcome: name is the owner of its
-- record, before how many units there were when it began. It is done without where something is in
-- the way: what becomes of the run does not depend on it. The newest 200 are kept.
local function noteslice(prefix, id, ms, outcome, name, started, before)
  local units = tonumber(call('HGET', runkey(prefix, id), 'units') or 0) or 0
  started, before = tonumber(started or ms) or ms, tonumber(before or 0) or 0
  local key = sliceskey(prefix, id)
  local text = fmt('%.0f %.0f %.0f %s %s', started, math.max(0, ms - started), math.max(0, units - before), outcome, match(name, '^resqued:(.*)#') or '-')
  if type(pcall_('RPUSH', key, text)) ~= 'number' then return end
  pcall_('LTRIM', key, -200, -1)
  pcall_('EXPIRE', key, 7776000) -- versions that do not know it leave it when they forget the run
end

-- needlong ends the script, before it has written anything, unless it may do all that it does
-- from there on. queue is nil where nothing is pushed.
local function needlong(prefix, id, queue)
  need(runkey(prefix, id), 'HGET', 'HMGET', 'HGETALL', 'HSET', 'HDEL', 'PERSIST', 'DEL')
  need(statekey(prefix, id), 'HGETALL', 'HSET', 'HDEL', 'DEL')
  need(currentkey(prefix), 'HGET', 'HSET', 'HDEL')
  need(prefix .. 'resqued:inflight:', 'HEXISTS')
  for _, key in ipairs({activekey(prefix), endedkey(prefix)}) do
    need(key, 'ZADD', 'ZREM', 'ZSCORE')
    if not counts('ZCARD', key) then fail('RESQUEDTYPE ' .. key .. ' is no sorted set; move it away') end
  end
  needhash(runkey(prefix, id))
  needhash(statekey(prefix, id))
  needhash(currentkey(prefix))
  if not queue then return end
  local key = prefix .. 'queue:' .. queue
  needlist(key)
  need(key .. ':uniqueue', 'EXISTS')
  needcompanions(prefix)
  if not len(key) then fail('RESQUEDTYPE ' .. key .. ' is no list; move it away') end
  if not utyped(key) then
    fail('RESQUEDTYPE ' .. key .. ':uniqueue is no set or ' .. key .. ':start_at no list; move it away')
  end
end

-- A run may belong to a tenant. Some of the runs of one tenant have a slice in a queue or in hand:
-- those in the set busy. The others stand in line, a sorted set in the order of their turns, and
-- their payloads are nowhere. One whose slice waits for some time is in neither.
--
-- How many may be busy the class says. Where it says no number, one slice of the tenant waits in a
-- queue at a time, and the next one does when that begins: so a tenant that is alone comes to use
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
  need(busy, 'SADD', 'SREM', 'SISMEMBER', 'SRANDMEMBER')
  need(line, 'ZADD', 'ZREM', 'ZSCORE', 'ZRANGE', 'ZREVRANGE')
  need(tenantskey(prefix), 'ZADD', 'ZREM')
  need(shareskey(prefix), 'HGET', 'HSET')
  need(nextkey(prefix), 'HGET', 'HSET', 'HDEL')
  need(hungrykey(prefix), 'ZADD', 'ZREM', 'ZRANGE')
  need(steppedkey(prefix), 'SADD', 'SREM', 'SRANDMEMBER')
  need(prefix .. 'resqued:longjob:run:', 'HMGET', 'HSET')
  need(prefix .. 'resqued:inflight:', 'HEXISTS')
  if not counts('SCARD', busy) then fail('RESQUEDTYPE ' .. busy .. ' is no set; move it away') end
  if not counts('SCARD', steppedkey(prefix)) then fail('RESQUEDTYPE ' .. steppedkey(prefix) .. ' is no set; move it away') end
  for _, key in ipairs({line, tenantskey(prefix), hungrykey(prefix)}) do
    if not counts('ZCARD', key) then fail('RESQUEDTYPE ' .. key .. ' is no sorted set; move it away') end
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
  return not lacks(key, 'LLEN', 'RPUSH') and not lacks(key .. ':uniqueue', 'EXISTS') and not lackscompanions(prefix) and len(key) and utyped(key)
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

-- A run that is paused has a field paused, the time since when. For everything else it waits or
-- runs: it is the newest of its kind, and keeps what it remembers. Once the payload of its next
-- slice is nowhere, which takes until a process has found it in a queue, it is parked.

-- park notes that, and takes the run's slice, or its place in line, from it. Its sign of life is
-- one that never gets old, so that it is not missed.
local function park(prefix, id, tenant, ms)
  call('HSET', runkey(prefix, id), 'parked', '1')
  call('ZADD', activekey(prefix), '9000000000000000', id)
  if tenant and tenant ~= '' then giveup(prefix, tenant, id, ms) end
end

-- ofsubject reports whether a run is that of a subject of a recurring job, whatever starts it,
-- and counts it among those that may wait or run.
local function ofsubject(prefix, id, class, kind)
  local subjects, starts = subjectskey(prefix, class), startskey(prefix, class)
  if pcall_('HEXISTS', subjects, kind) ~= 1 then return false end
  pcall_('SADD', starts, id)
  local left = pcall_('PTTL', subjects)
  if type(left) == 'number' and left > 0 then pcall_('PEXPIRE', starts, left) end
  return true
end

-- behind returns the record in flight in which the code of a run is still running, or of the
-- one before it; nil = none is. The run may be over for all that Redis knows.
local function behind(prefix, id)
  local v = call('HMGET', runkey(prefix, id), 'owner', 'behind')
  for _, name in ipairs({v[1] or '', v[2] or ''}) do
    if recorded(prefix, name) then return name end
  end
  return nil
end

-- addrun makes a run, the newest of its kind, and pushes its first slice. again is the
-- queue of its further slices if it is not that of its class, tenant may be ''.
local function addrun(prefix, id, kind, class, args, queue, again, tenant, payload, ms)
  local at, old = fmt('%.0f', ms), call('HGET', currentkey(prefix), kind)
  local name = old and behind(prefix, old)
  if name then call('HSET', runkey(prefix, id), 'behind', name) end
  call('HSET', runkey(prefix, id), 'kind', kind, 'class', class, 'args', args, 'first', queue, 'queue', queue,
    'again', again, 'status', 'queued', 'slice', '1', 'owner', '', 'fence', '0', 'created', at, 'seen', at)
  call('HSET', currentkey(prefix), kind, id)
  call('ZADD', activekey(prefix), at, id)
  if ofsubject(prefix, id, class, kind) then pcall_('HSET', subjectskey(prefix, class), kind, at) end
  if tenant ~= '' then
    -- name is the class as it stands in payloads.
    call('HSET', runkey(prefix, id), 'tenant', tenant, 'name', match(payload, '^{"class":(.-),"args":%["'))
  end
  queueslice(prefix, id, tenant, queue, payload, ms)
end

-- endrun gives a run its last status. It is forgotten after keep ms.
local function endrun(prefix, id, status, keep, ms)
  call('HSET', runkey(prefix, id), 'status', status, 'ended', fmt('%.0f', ms))
  call('HDEL', runkey(prefix, id), 'rerun', 'paused', 'parked')
  call('ZREM', activekey(prefix), id)
  call('ZADD', endedkey(prefix), fmt('%.0f', ms + keep), id)
  local v = call('HMGET', runkey(prefix, id), 'tenant', 'owner')
  if not v[1] then return end
  if recorded(prefix, v[2] or '') then
    call('ZREM', linekey(prefix, v[1]), id) -- its code runs; leave, or who finds it dead, goes on
  else
    giveup(prefix, v[1], id, ms)
  end
end

-- displace is for the run that was the newest of its kind until now.
local function displace(prefix, id, keep, ms)
  local status = call('HGET', runkey(prefix, id), 'status')
  if active(status) then
    endrun(prefix, id, 'superseded', keep, ms)
    call('DEL', statekey(prefix, id))
  elseif status then
    local at = tonumber(call('ZSCORE', endedkey(prefix), id) or 0)
    if at > ms + keep then call('ZADD', endedkey(prefix), fmt('%.0f', ms + keep), id) end
  end
end
