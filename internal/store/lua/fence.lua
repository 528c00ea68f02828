-- fence ends the lease of a dead process, so that its late packets change nothing, and returns the jobs that it left.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   force: 1 its death is certain; 0 its lease must have expired, and leases may be judged
-- ARGV[4]   lease (ms)
-- ARGV[5]   beat interval (ms)
-- ARGV[6]   cursor ('0' begins)
-- ARGV[7]   the oldest format that the caller reads
-- ARGV[8]   the newest one
-- RETURNS   {'ALIVE'} nothing was done; {'FORMAT', format, version, host} likewise: the caller does
--           not read the process's format; or {'OK', next cursor ('0': that was all), token,
--           record, request to end the job or '', …}; a token may come twice
-- COST      about 8 commands, and 1 per record; O(n), at most about 1,000 records per call

local prefix, proc, force = ARGV[1], ARGV[2], ARGV[3] == '1'
local procs = prefix .. 'resqued:procs'
local ms = now()
local lease = tonumber(call('ZSCORE', procs, proc) or 0)
if not force and lease >= ms then return {'ALIVE'} end
local wrote = pcall_('HMGET', prefix .. 'resqued:proc:' .. proc, 'format', 'version', 'host')
if not wrote.err and unread(wrote[1], ARGV[7], ARGV[8]) then
  return {'FORMAT', wrote[1] or '', wrote[2] or '', wrote[3] or ''}
end
-- The clock may have jumped forward since the lease seemed to have expired.
if not force and lease ~= 0 and unjudged(prefix, ms, tonumber(ARGV[4]), tonumber(ARGV[5])) then return {'ALIVE'} end
call('PERSIST', procs)
call('ZADD', procs, 0, proc)
-- A process holds one job per thread. More records are junk, and are read in parts.
local reply, records, cursor = {'OK'}, nil, ARGV[6]
if cursor == '0' and call('HLEN', KEYS[1]) <= 1000 then
  records = call('HGETALL', KEYS[1])
else
  cursor, records = unpack(call('HSCAN', KEYS[1], cursor, 'COUNT', 1000))
end
reply[2] = cursor
for i = 1, #records, 2 do
  local request = pcall_('HGET', prefix .. 'resqued:kills:' .. proc, records[i])
  reply[#reply + 1] = records[i]
  reply[#reply + 1] = records[i + 1]
  reply[#reply + 1] = type(request) == 'string' and request or ''
end
return reply
