-- add enqueues runs of long jobs, in one of three ways:
--   a  always: supersedes the newest run of the same kind
--   u  unique: not if the newest run of the same kind waits or runs
--   d  debounce: as unique, but a run that has begun is followed by one more
--
-- KEYS[1]   resqued:longjob:current
-- ARGV[1]   prefix
-- ARGV[2]   way
-- ARGV[3]   how long a superseded run is kept (ms)
-- ARGV[4…]  per run: uuid, kind, class, args, queue, queue of further slices or '', tenant or
--           '', payload of the first slice
-- RETURNS   {per run: n (new), e (one exists), r (one exists, and is followed by one more);
--           uuid, …}; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      1 command, and about 20 per run; O(n). With a tenant those of turn in longjob.

local prefix, way, keep, ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), (now())
for i = 4, #ARGV, 8 do
  needlong(prefix, ARGV[i], ARGV[i + 4])
  needtenant(prefix, ARGV[i + 6])
  local old = call('HGET', KEYS[1], ARGV[i + 1])
  if old then needhash(runkey(prefix, old)) end
  if old and way == 'a' then needtenant(prefix, call('HGET', runkey(prefix, old), 'tenant')) end
end
local reply = {}
for i = 4, #ARGV, 8 do
  local id, kind = ARGV[i], ARGV[i + 1]
  local old = call('HGET', KEYS[1], kind)
  if old and way ~= 'a' and active(call('HGET', runkey(prefix, old), 'status')) then
    -- A run that has not begun will see everything that the caller did before.
    local more = way == 'd' and call('HGET', runkey(prefix, old), 'begun')
    if more then call('HSET', runkey(prefix, old), 'rerun', '1') end
    reply[#reply + 1] = more and 'r' or 'e'
    reply[#reply + 1] = old
  else
    addrun(prefix, id, kind, ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6], ARGV[i + 7], ms)
    if old then displace(prefix, old, keep, ms) end
    reply[#reply + 1] = 'n'
    reply[#reply + 1] = id
  end
end
return reply
