-- save saves a slice's progress and, depending on op, ends it. It writes nothing unless the slice runs under this
-- fencing token, its in-flight record exists, and its process's lease has not expired.
--
-- KEYS[1]   resqued:longjob:run:<uuid>
-- ARGV[1]   prefix
-- ARGV[2]   uuid
-- ARGV[3]   number of the slice
-- ARGV[4]   proc
-- ARGV[5]   token
-- ARGV[6]   fence
-- ARGV[7]   op:
--           c  continues
--           y  ends; the next slice, payload, goes to queue, unless the run is paused
--           l  ends; the next slice waits
--           k  ends; this slice runs again, and its payload returns by other means
--           d  ends with the run completed; f  or failed. If one more run was requested,
--              payload is its first slice
-- ARGV[8]   payload
-- ARGV[9]   queue
-- ARGV[10]  how long an ended run is kept, or the slice waits (ms)
-- ARGV[11]  uuid of a further run
-- ARGV[12]  how long this run is kept then (ms)
-- ARGV[13]  whether there was progress (1|0)
-- ARGV[14…] number of fields, per field: name, value; number of entries of the state, per
--           entry: key, value; then keys of the state to remove
-- RETURNS   {'OK', uuid of the further run or '', 1 if the run is paused, else 0}; {'AGAIN'} it has
--           already ended so; or why not: {'GONE'}, {'OVER', status}, {'SUPERSEDED'} another slice or
--           token is current, {'LEASE'} the lease has expired; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 8 commands, 1 per field and per entry; about 10 more to end, 15 more with a
--           further run; O(n). With a tenant those of turn in longjob.

local prefix, id, slice, proc, token, fence, op = unpack(ARGV, 1, 7)
local payload, queue, wait, further, shortly, moved = ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12]), ARGV[13]
local ends = op ~= 'c'
local ms = now()
local v = call('HMGET', KEYS[1], 'status', 'slice', 'owner', 'fence', 'closed', 'rerun', 'kind', 'class', 'args', 'first', 'again', 'slices', 'tenant', 'started', 'before', 'paused')
if not v[1] then return {'GONE'} end
if ends and v[5] == fence then return {'AGAIN'} end
if v[4] ~= fence then return {'SUPERSEDED'} end
if v[1] ~= 'running' then return {'OVER', v[1]} end
local me = owner(proc, token)
if v[2] ~= slice or v[3] ~= me or not recorded(prefix, me) then return {'SUPERSEDED'} end
if not leased(prefix, proc, ms) then return {'LEASE'} end
if v[11] and v[11] ~= '' then queue = v[11] end
local final = op == 'd' or op == 'f'
local rerun = final and v[6] == '1'
if rerun then queue = v[10] end
local paused = v[16] and '1' or '0'
local pushes = op == 'y' or op == 'l' or rerun
needlong(prefix, id, pushes and queue or nil)
local tenant = v[13]
if ends then needtenant(prefix, tenant) end
if op == 'l' then
  local set = prefix .. 'resqued:delayed'
  if not counts('ZCARD', set) then return redis.error_reply('RESQUEDTYPE ' .. set .. ' is not a sorted set; move it away') end
end

call('PERSIST', KEYS[1]) -- as in begin
local at, next = fmt('%.0f', ms), 14
local n = tonumber(ARGV[next])
for i = next + 1, next + 2 * n, 2 do call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
next = next + 2 * n + 1
n = tonumber(ARGV[next])
for i = next + 1, next + 2 * n, 2 do call('HSET', statekey(prefix, id), ARGV[i], ARGV[i + 1]) end
for i = next + 2 * n + 1, #ARGV do call('HDEL', statekey(prefix, id), ARGV[i]) end
call('HSET', KEYS[1], 'seen', at)
if moved == '1' then call('HSET', KEYS[1], 'moved', '1', 'deaths', '0') end
if not ends then
  call('ZADD', activekey(prefix), at, id)
  return {'OK', '', paused}
end
local outcomes = {y = 'yielded', l = 'waits', k = 'interrupted', d = 'completed', f = 'failed'}
noteslice(prefix, id, ms, outcomes[op] or op, me, v[14], v[15])
call('HSET', KEYS[1], 'owner', '', 'closed', fence, 'slices', fmt('%.0f', tonumber(v[12] or 0) + 1))
if not final then
  call('HSET', KEYS[1], 'status', 'queued')
  call('ZADD', activekey(prefix), fmt('%.0f', op == 'l' and ms + wait or ms), id)
  if op == 'k' then
    if tenant then call('HSET', nextkey(prefix), tenant, id) end
    return {'OK', '', paused}
  end
  call('HSET', KEYS[1], 'slice', fmt('%.0f', tonumber(slice) + 1), 'queue', queue)
  if op == 'y' and v[16] then
    park(prefix, id, tenant, ms)
  elseif op == 'y' then
    queueslice(prefix, id, tenant, queue, payload, ms)
  else
    setback(prefix, ms)
    call('ZADD', prefix .. 'resqued:delayed', fmt('%.0f', ms + wait), delayed('longjob:' .. id .. '#' .. slice, queue, payload, false))
    if tenant then giveup(prefix, tenant, id, ms) end
  end
  return {'OK', '', paused}
end
endrun(prefix, id, op == 'd' and 'completed' or 'failed', wait, ms)
if op == 'd' then call('DEL', statekey(prefix, id)) end -- a failed run may be continued
if not rerun then return {'OK', '', '0'} end
addrun(prefix, further, v[7], v[8], v[9], v[10], v[11] or '', tenant or '', payload, ms)
displace(prefix, id, shortly, ms)
return {'OK', further, '0'}
