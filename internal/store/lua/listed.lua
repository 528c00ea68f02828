-- listed returns the name of the list to which Resque's multi-queue failure backend adds the
-- failures of a queue; failed if that cannot be written to, or is a key of something else.
local function listed(prefix, queue)
  if find(queue, '^queue:') or find(queue, '^resqued:') then return 'failed' end
  local list, set = queue .. '_failed', prefix .. 'failed_queues'
  if lacks(set, 'SCARD', 'SADD') or type(pcall_('SCARD', set)) ~= 'number' then return 'failed' end
  if lacks(prefix .. list, 'LLEN', 'RPUSH') or not len(prefix .. list) then return 'failed' end
  return list
end
