-- drop_kept removes payloads kept for failure records that have been removed.
--
-- KEYS[1]   resqued:parked
-- ARGV[1]   prefix
-- ARGV[2…]  ids; entries parked for another reason stay
-- RETURNS   how many were removed; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      3 commands, and 4 per id; O(n)

local prefix, n = ARGV[1], 0
local wrong = parked.obstacle(prefix)
if wrong then return redis.error_reply('RESQUEDTYPE ' .. wrong .. '; move it away') end
call('PERSIST', KEYS[1]) -- the first write
for i = 2, #ARGV do
  local meta = pcall_('HGET', KEYS[1], ARGV[i])
  if type(meta) == 'string' and match(meta, '^1 l ') then
    parked.drop(prefix, ARGV[i])
    n = n + 1
  end
end
return n
