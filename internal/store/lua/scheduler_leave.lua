-- scheduler_leave releases resque-scheduler's master lock, if it is the caller's.
--
-- KEYS[1]   the lock
-- ARGV[1]   prefix
-- ARGV[2]   the caller's name in it
-- RETURNS   1; 0 the lock is not the caller's
-- COST      2 commands; O(1)

if pcall_('GET', KEYS[1]) ~= ARGV[2] then return 0 end
return call('DEL', KEYS[1])
