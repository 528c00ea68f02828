-- mirror writes worker:<id> for jobs that have been running for a moment, for Ruby's pages and exporters.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2…]  per job: token, worker id, value
-- RETURNS   how many were written, without jobs that have ended
-- COST      2 commands per job; O(n)

local n = 0
for i = 2, #ARGV, 3 do
  if call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    call('SET', ARGV[1] .. 'worker:' .. ARGV[i + 1], ARGV[i + 2])
    n = n + 1
  end
end
return n
