-- classlock_release removes a class lock in another Redis than the daemon's, or a loner marker, if its value has the
-- caller's name.
--
-- KEYS[1]   the key
-- ARGV[1]   the name in its value
-- RETURNS   1 removed; 0 the key has another value or does not exist
-- COST      2 commands; O(1)

local value = pcall_('GET', KEYS[1])
if type(value) ~= 'string' or nameof(value) ~= ARGV[1] then return 0 end
return call('DEL', KEYS[1])
