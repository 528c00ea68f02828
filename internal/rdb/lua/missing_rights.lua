-- missing_rights returns those of some commands that the user may not run on a key.
--
-- KEYS[1]   a key
-- ARGV[1…]  commands
-- RETURNS   {command, …}; {} before Redis 7, which cannot be asked
-- COST      no command; one question per command, O(n)

local missing = {}
for _, command in ipairs(ARGV) do
  if may and not may(command, KEYS[1]) then missing[#missing + 1] = command end
end
return missing
