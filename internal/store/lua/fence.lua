-- fence ends the lease of a dead process, so that no late packet of it changes
-- anything, and returns what it left.
--
-- KEYS[1] resqued:inflight:<proc>
-- ARGV    prefix, proc, force (1: its death is certain; 0: its lease must be past, and
--         leases may be judged), lease (ms), beat interval (ms), cursor ('0' begins)
-- RETURNS {'ALIVE'}, or {'OK', cursor to go on from ('0' that was all), token, record,
--         request to kill the job or '', …}; a token may come twice

local prefix, proc, force = ARGV[1], ARGV[2], ARGV[3] == '1'
local procs = prefix .. 'resqued:procs'
local ms = now()
local lease = tonumber(call('ZSCORE', procs, proc) or 0)
if not force and lease >= ms then return {'ALIVE'} end
-- The clock may have gone forward since somebody saw that the lease was past.
if not force and lease ~= 0 and unjudged(prefix, ms, tonumber(ARGV[4]), tonumber(ARGV[5])) then return {'ALIVE'} end
call('PERSIST', procs)
call('ZADD', procs, 0, proc)
-- A process holds as many jobs as it has threads. More is junk, and comes in parts.
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
