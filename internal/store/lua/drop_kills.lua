-- unkill removes requests for jobs that had ended before anybody obeyed.
--
-- KEYS[1] resqued:inflight:<proc>
-- ARGV    prefix, proc, tokens
-- RETURNS how many were removed

local kills, n = ARGV[1] .. 'resqued:kills:' .. ARGV[2], 0
for i = 3, #ARGV do
  if call('HEXISTS', KEYS[1], ARGV[i]) == 0 then
    local removed = pcall_('HDEL', kills, ARGV[i])
    if removed == 1 then n = n + 1 end
  end
end
return n
