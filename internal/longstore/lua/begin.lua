-- begin begins a slice under the in-flight record that has its payload. A repeated call for the same record
-- is the same slice under a new fencing token.
--
-- KEYS[1]   resqued:longjob:run:<uuid>
-- ARGV[1]   prefix
-- ARGV[2]   uuid
-- ARGV[3]   number of the slice (0: the next one)
-- ARGV[4]   proc
-- ARGV[5]   token
-- ARGV[6]   how many slices per tenant the class allows at a time, a = as there is room, '' = as
--           stored
-- ARGV[7]   class, or '' for any
-- ARGV[8]   the oldest format that the caller reads
-- ARGV[9]   the newest one
-- ARGV[10]  the queues from which the thread takes jobs, ',a,b,', or '' for any
-- RETURNS   {'RUN', {fields of the run}, {its state}}; or why not: {'GONE'}, {'OTHER'} the run has
--           another class, {'OVER', status}, {'WAIT'} it is in line: its tenant has enough slices,
--           or a hungrier one waits, {'STALE'} another slice is next, {'BUSY'} another process runs
--           it, {'LOST'} the record is gone, {'LEASE'} the process's lease has expired, {'UNREAD'}
--           the caller does not read the run's format, {'BEHIND'} the code of the run that it
--           replaced still runs, {'PAUSED'} the run is paused, and now parked;
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 15 commands; O(fields of the run and of its state). With a tenant about 6
--           more, and those of turn, outweighed and wake in longjob.

local prefix, id, slice, proc, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
needlong(prefix, id)
local ms, us = now()
local v = call('HMGET', KEYS[1], 'status', 'slice', 'owner', 'fence', 'deaths', 'moved', 'tenant', 'class', 'behind', 'format', 'started', 'seen', 'units', 'before', 'paused', 'queue', 'name', 'stepped')
if not v[1] then return {'GONE'} end
if unread(v[10], ARGV[8], ARGV[9]) then return {'UNREAD'} end
if ARGV[7] ~= '' and ARGV[7] ~= v[8] then return {'OTHER'} end
local tenant = v[7]
if not active(v[1]) then
  if tenant and v[3] ~= '' and not recorded(prefix, v[3] or '') then -- its process has died since
    needtenant(prefix, tenant)
    giveup(prefix, tenant, id, ms)
    call('HSET', KEYS[1], 'owner', '')
  end
  return {'OVER', v[1]}
end
if slice ~= '0' and slice ~= v[2] then return {'STALE'} end
local me = owner(proc, token)
if not recorded(prefix, me) then return {'LOST'} end
if not leased(prefix, proc, ms) then return {'LEASE'} end
local before = v[3] or ''
if before ~= '' and before ~= me and recorded(prefix, before) then return {'BUSY'} end
needtenant(prefix, tenant)
if not v[15] and v[9] and v[9] ~= me and recorded(prefix, v[9]) then
  if tenant then call('ZREM', hungrykey(prefix), tenant) end -- no slice must step back for it
  return {'BEHIND'}
end
call('PERSIST', KEYS[1]) -- see register: a full server must not keep a run from ending
-- A value that is not a number counts as 0: fencing tokens then continue from the clock.
local function number(text, most)
  local n = tonumber(text or 0)
  return n and n >= 0 and n < most and n or 0
end
local deaths = number(v[5], 999999999)
if before ~= '' and before ~= me then
  noteslice(prefix, id, tonumber(v[12] or ms) or ms, 'died', before, v[11], v[14])
  deaths = v[6] == '1' and 1 or deaths + 1
end
if v[15] then
  call('HSET', KEYS[1], 'status', 'queued', 'owner', '', 'deaths', deaths)
  call('HDEL', KEYS[1], 'moved')
  park(prefix, id, tenant, ms)
  return {'PAUSED'}
end
if tenant then
  local room = share(prefix, v[8], ARGV[6])
  if call('SISMEMBER', busykey(prefix, tenant), id) == 0 then
    -- It was delayed, or an operator has pushed it.
    if room and holders(prefix, tenant, room) >= room then
      stand(prefix, tenant, id, ms)
      return {'WAIT'}
    end
    hold(prefix, tenant, id, ms)
  end
  local way = not room and before == '' and outweighed(prefix, tenant, ARGV[10])
  if way == 'more' then
    stepback(prefix, tenant, id, ms)
    return {'WAIT'}
  elseif way == 'next' and v[18] ~= v[2] and v[17] and pushable(prefix, v[16]) then
    call('HSET', KEYS[1], 'stepped', v[2])
    call('HSET', nextkey(prefix), tenant, id)
    append(prefix, v[16], slicepayload(id, v[17], v[2]), ms)
    return {'WAIT'}
  end
end
local fence, at = math.max(number(v[4], 9e15) + 1, us), fmt('%.0f', ms)
call('HSET', KEYS[1], 'status', 'running', 'owner', me, 'fence', fmt('%.0f', fence), 'deaths', deaths, 'seen', at,
  'started', at, 'before', v[13] or '0')
call('HDEL', KEYS[1], 'moved', 'behind', 'refused', 'refuser', 'refused_at', 'stepped')
if not call('HGET', KEYS[1], 'begun') then call('HSET', KEYS[1], 'begun', at) end
call('ZADD', activekey(prefix), at, id)
if tenant then
  call('HSET', nextkey(prefix), '', tenant)
  turn(prefix, tenant, ms)
  wake(prefix, ms)
end
return {'RUN', call('HGETALL', KEYS[1]), call('HGETALL', statekey(prefix, id))}
