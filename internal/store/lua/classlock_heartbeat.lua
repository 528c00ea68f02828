-- classlock_heartbeat extends class locks in another Redis than the daemon's, where beat does
-- not reach them, and returns which are lost. Locks with a time limit are only looked at.
--
-- KEYS[1]   the first lock
-- ARGV[1]   TTL (s)
-- ARGV[2…]  per lock: lock, name of its holder
-- RETURNS   {index of a lock that is not its holder's any more, counted from 0, …}
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
