-- unregister removes a process that leaves in good order.
--
-- KEYS[1] resqued:inflight:<proc>
-- ARGV    prefix, proc
-- RETURNS how many jobs it still holds; only with 0 was it removed

local n = call('HLEN', KEYS[1])
if n == 0 then forget_process(ARGV[1], ARGV[2]) end
return n
