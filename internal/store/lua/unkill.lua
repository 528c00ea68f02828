-- unkill removes requests for jobs that had ended before anybody obeyed.
--
-- KEYS[1] resqued:inflight:<proc>
-- ARGV    prefix, proc, tokens
-- RETURNS how many were removed

local kills, n = ARGV[1] .. 'resqued:kills:' .. ARGV[2], 0
for i = 3, #ARGV do
  local value = pcall_('HGET', kills, ARGV[i])
  if type(value) == 'string' and sub(value, 1, 1) ~= '=' and call('HEXISTS', KEYS[1], ARGV[i]) == 0 then
    n = n + call('HDEL', kills, ARGV[i])
  end
end
return n
