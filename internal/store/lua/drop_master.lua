-- drop_master removes the entry of a master.
--
-- KEYS[1]   resqued:master:<id>
-- ARGV[1]   the set of masters
-- ARGV[2]   id
-- ARGV[3]   resqued:lined
-- RETURNS   how many jobs wait in lines, 0 if there are other masters
-- COST      4 commands; O(queues with lines)

redis.call('DEL', KEYS[1])
redis.call('SREM', ARGV[1], ARGV[2])
if redis.pcall('SCARD', ARGV[1]) ~= 0 then return 0 end
local counts, jobs = redis.pcall('HVALS', ARGV[3]), 0
for _, n in ipairs(counts.err and {} or counts) do jobs = jobs + (tonumber(n) or 0) end
return jobs
