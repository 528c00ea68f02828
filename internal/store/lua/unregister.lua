-- unregister removes a process that leaves in good order.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- RETURNS   how many jobs it still holds; it was removed only if 0
-- COST      1 command; with 0 those of forget_process, 4 and 2 per 1,000 workers

local n = call('HLEN', KEYS[1])
if n == 0 then forget_process(ARGV[1], ARGV[2]) end
return n
