-- drop_lines removes lines of a queue, with the jobs that wait in them.
--
-- KEYS[1]   resqued:lines:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- RETURNS   {how many jobs those were, whether there are more lines (1|0)}; error NOPERM: nothing
--           was done
-- COST      about 7 commands per line, of 100 at most

local prefix, queue = ARGV[1], ARGV[2]
need(prefix .. 'resqued:line:', 'LLEN', 'UNLINK', 'ZRANGE', 'ZREM', 'HGET', 'HSET', 'HDEL', 'HINCRBY', 'EXISTS')
local l, jobs = lines(prefix), 0
local names = pcall_('ZRANGE', KEYS[1], 0, 99)
if names.err then return {0, 0} end
for _, name in ipairs(names) do
  local key = l.list(queue, name)
  local n = pcall_('LLEN', key)
  if type(n) == 'number' then
    jobs = jobs + n
    call('UNLINK', key)
  end
  l.add(queue, -(tonumber(n) or 0))
  l.finish(queue, name)
end
l.flush()
return {jobs, pcall_('EXISTS', KEYS[1])}
