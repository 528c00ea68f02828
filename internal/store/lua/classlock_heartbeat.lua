-- classlock_heartbeat extends class locks in another Redis than the daemon's, which beat does not reach, and returns
-- lost ones. Locks with a time limit are only checked.
--
-- KEYS[1]   the first lock
-- ARGV[1]   TTL (s)
-- ARGV[2…]  per lock: lock, name of its holder
-- RETURNS   {index, from 0, of a lock that is no longer its holder's, …}
-- COST      2 commands per lock; O(n)

local lost = {}
for i = 2, #ARGV, 2 do
  local lock = ARGV[i]
  local value = pcall_('GET', lock)
  if type(value) ~= 'string' or nameof(value) ~= ARGV[i + 1] then
    lost[#lost + 1] = (i - 2) / 2
  elseif not match(value, '^%d') then
    call('EXPIRE', lock, ARGV[1])
  end
end
return lost
