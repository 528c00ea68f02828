-- keep extends class locks in another Redis than the daemon's, whose beat does that
-- for its own, and tells which are lost. Those with a time limit are only looked at.
--
-- KEYS[1] the first lock
-- ARGV    TTL (s), then per lock: lock, name of its holder
-- RETURNS the indexes, from 0, of those that are not their holder's any more

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
