-- host_verdict settles whether a silent host is dead. If so, it ends the leases of its processes, so that none
-- of them can change anything in Redis, and any master recovers their jobs.
--
-- KEYS[1]   resqued:procs
-- ARGV[1]   prefix
-- ARGV[2]   place: the host and its boot
-- ARGV[3]   1 it is dead, 0 not proven
-- ARGV[4]   its last sign of life known to the caller (ms): a later one proves that it lives
-- ARGV[5]   how long a master's entry lives (ms)
-- ARGV[6]   the caller's turn; '' a person decides, without a turn
-- ARGV[7]   how long no master gets the turn afterwards (ms)
-- ARGV[8]   the oldest format that the caller reads
-- ARGV[9]   the newest one
-- RETURNS   {'OK', {process whose lease was ended, …}, how many processes keep their leases because
--           the caller does not read their format}; {'ALIVE', its last sign of life (ms)}, {'GONE'}
--           none of its processes has a lease, or {'LOST'} the caller does not have the turn:
--           nothing was done
-- COST      3 commands, those of signs in hosts, and 3 per process; O(n)

local prefix, place, since = ARGV[1], ARGV[2], tonumber(ARGV[4])
local turn = prefix .. 'resqued:asked:' .. place
if ARGV[6] ~= '' and query('GET', turn) ~= ARGV[6] then return {'LOST'} end
if ARGV[3] ~= '1' then
  call('PEXPIRE', turn, ARGV[7])
  return {'OK', {}, 0}
end
local h = signs(prefix, place, now(), 0, tonumber(ARGV[5]))
if not h then
  call('DEL', turn)
  return {'GONE'}
end
-- One second, the precision of the age of a master's entry.
if h.last > since + 1000 then
  call('PEXPIRE', turn, ARGV[7])
  return {'ALIVE', h.last}
end
call('PERSIST', KEYS[1]) -- a full server accepts this write, and then the others
local ended, left = {}, 0
for _, proc in ipairs(h.procs) do
  local v = pcall_('HGET', prefix .. 'resqued:proc:' .. proc, 'format')
  if type(v) ~= 'table' and unread(v, ARGV[8], ARGV[9]) then
    left = left + 1
  else
    call('ZADD', KEYS[1], 'XX', 0, proc)
    ended[#ended + 1] = proc
    -- Other masters leave a fenced process to its own master while that has an entry. A living master writes it
    -- again.
    local master = match(proc, '^(.*):[^:]*$')
    if master then pcall_('DEL', prefix .. 'resqued:master:' .. master) end
  end
end
call('DEL', turn)
return {'OK', ended, left}
