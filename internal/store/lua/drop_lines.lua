-- drop_lines removes lines of a queue with their jobs.
--
-- KEYS[1]   resqued:lines:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- RETURNS   {how many jobs were removed, whether there are more lines (1|0)}; error NOPERM:
--           nothing was done
-- COST      about 7 commands per line for a lock, of 100 at most, and 2 per tenant, of 100 at most

local prefix, queue = ARGV[1], ARGV[2]
local l, jobs = lines(prefix), 0
local turns, names, places = l.turns(queue), pcall_('ZRANGE', KEYS[1], 0, 99), pcall_('ZRANGE', l.turns(queue), 0, 99)

local function drop(key)
  local n = pcall_('LLEN', key)
  if type(n) ~= 'number' then return 0 end
  jobs = jobs + n
  call('UNLINK', key)
  return n
end

for _, name in ipairs(names.err and {} or names) do
  l.add(queue, -drop(l.list(queue, name)))
  l.finish(queue, name)
end
if not places.err and #places > 0 then
  for _, place in ipairs(places) do
    local n = drop(l.tenant(queue, place))
    l.add(queue, -n, -n)
  end
  l.leave(queue, places)
end
l.flush()
-- A key of another type contains no lines.
local more = not names.err and pcall_('EXISTS', KEYS[1]) == 1 or not places.err and pcall_('EXISTS', turns) == 1
return {jobs, more and 1 or 0}
