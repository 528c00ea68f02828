-- host_verdict says what was found out about a silent host. If it is dead it ends the leases of its processes, so that
-- none of them can do anything in Redis any more, and any master recovers their jobs.
--
-- KEYS[1]   resqued:procs
-- ARGV[1]   prefix
-- ARGV[2]   place: the host and its boot
-- ARGV[3]   1 it is dead, 0 that was not proven
-- ARGV[4]   its last sign of life that is known to the caller (ms): it lives if there is a later one
-- ARGV[5]   how long the entry of a master lives (ms)
-- ARGV[6]   whose turn it was to find out; '' a person says it, who needs no turn
-- ARGV[7]   how long no master has its turn then (ms)
-- ARGV[8]   the oldest format that the caller reads
-- ARGV[9]   the newest one
-- RETURNS   {'OK', {process whose lease has ended, …}, how many processes were left to their leases since they write in
--           another format}; {'ALIVE', its last sign of life (ms)}, {'GONE'} no process of it has a lease, or {'LOST'} it
--           was not the caller's turn: nothing was done
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
-- One second, because the age of a master's entry is not known more exactly than that.
if h.last > since + 1000 then
  call('PEXPIRE', turn, ARGV[7])
  return {'ALIVE', h.last}
end
call('PERSIST', KEYS[1]) -- a full server accepts this write, and after it the others
local ended, left = {}, 0
for _, proc in ipairs(h.procs) do
  local v = pcall_('HGET', prefix .. 'resqued:proc:' .. proc, 'format')
  if type(v) ~= 'table' and unread(v, ARGV[8], ARGV[9]) then
    left = left + 1
  else
    call('ZADD', KEYS[1], 'XX', 0, proc)
    ended[#ended + 1] = proc
    -- The others leave a fenced process to its master as long as that has an entry. If it lives after all it writes it anew.
    local master = match(proc, '^(.*):[^:]*$')
    if master then pcall_('DEL', prefix .. 'resqued:master:' .. master) end
  end
end
call('DEL', turn)
return {'OK', ended, left}
