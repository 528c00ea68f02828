-- register gives a worker process its lease and shows its threads as Resque workers.
--
-- KEYS[1]   resqued:procs
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   lease (ms)
-- ARGV[4]   beat interval (ms)
-- ARGV[5]   start time, in Resque's format
-- ARGV[6]   w, the number of workers
-- ARGV[7]   a random id
-- ARGV[8]   format in which the process writes
-- ARGV[9]   its version and its host
-- ARGV[10…] worker ids; then field/value pairs of resqued:proc:<proc>
-- RETURNS   id of this data set: a different id next time shows that the server was emptied or
--           replaced; error RESQUEDTYPE: a key has the wrong type, nothing was done
-- COST      13 commands, and 1 per worker; O(w). After a silence of all processes those
--           of relock in addition.

local prefix, proc, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local nworkers = tonumber(ARGV[6])
for _, need in ipairs({{KEYS[1], 'zset'}, {prefix .. 'workers', 'set'}, {prefix .. 'resqued:meta', 'hash'}}) do
  local t = call('TYPE', need[1])
  t = type(t) == 'table' and t.ok or t
  if t ~= 'none' and t ~= need[2] then
    return redis.error_reply('RESQUEDTYPE ' .. need[1] .. ' is no ' .. need[2] .. '; move it away')
  end
end
local ms = now()
-- A script's first write must be one that a full server accepts; then it accepts the others. PERSIST changes nothing
-- here.
call('PERSIST', KEYS[1])
beaten(prefix, ms, lease, tonumber(ARGV[4]))
call('ZADD', KEYS[1], fmt('%.0f', ms + lease), proc)
local place = placeof(prefix, proc)
if place then pcall_('SADD', place, proc) end
-- Before the first beat, as no locks are given until then. Their holders' beats extend them.
relock(prefix, proc, fmt('%.0f', math.ceil(lease / 1000)))
local last = 9 + nworkers
for i = 10, last, 1000 do -- unpack has a limit
  call('SADD', prefix .. 'workers', unpack(ARGV, i, math.min(i + 999, last)))
end
for i = 10, last do call('SET', prefix .. 'worker:' .. ARGV[i] .. ':started', ARGV[5]) end
call('HSET', prefix .. 'resqued:proc:' .. proc, 'workers', table.concat(ARGV, '\n', 10, last), unpack(ARGV, last + 1))
local meta = prefix .. 'resqued:meta'
local known = call('HMGET', meta, 'id', 'format')
if not known[1] then call('HSET', meta, 'id', ARGV[7]) end
-- The newest format stays: data in it may outlast its writer.
if not known[2] or (tonumber(known[2]) or math.huge) < tonumber(ARGV[8]) then
  call('HSET', meta, 'format', ARGV[8], 'format_by', ARGV[9])
end
return known[1] or ARGV[7]
