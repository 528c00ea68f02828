-- leave gives back the master lock of resque-scheduler, if it is ours.
--
-- KEYS[1] the lock
-- ARGV    prefix, our name in it
-- RETURNS 1, 0 if it is not ours

if pcall_('GET', KEYS[1]) ~= ARGV[2] then return 0 end
return call('DEL', KEYS[1])
