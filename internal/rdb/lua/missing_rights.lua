-- missing_rights returns the commands that the user may not run on a key of resqued, and the keys that it
-- may not write.
--
-- KEYS[1]   a key
-- ARGV[1]   n, how many commands follow
-- ARGV[2…]  commands, then keys
-- RETURNS   {command or key, …}; {} before Redis 7, which cannot be asked
-- COST      no command; one question per command and per key, O(n)

local asking, missing = redis.acl_check_cmd, {}
if not asking then return missing end
local n = tonumber(ARGV[1])
for i = 2, #ARGV do
  local command, key = ARGV[i], KEYS[1]
  if i > n + 1 then command, key = 'SET', ARGV[i] end
  local known, may = pcall(asking, command, key, key, key) -- as many words as in lib/rights
  if not (known and may) then missing[#missing + 1] = ARGV[i] end
end
return missing
