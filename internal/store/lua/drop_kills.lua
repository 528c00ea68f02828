-- drop_kills removes requests to end jobs that have already ended.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3…]  tokens
-- RETURNS   how many were removed
-- COST      2 commands per token; O(n)

local kills, n = ARGV[1] .. 'resqued:kills:' .. ARGV[2], 0
for i = 3, #ARGV do
  if call('HEXISTS', KEYS[1], ARGV[i]) == 0 then
    local removed = pcall_('HDEL', kills, ARGV[i])
    if removed == 1 then n = n + 1 end
  end
end
return n
