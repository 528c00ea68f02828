-- prune_queue removes the name and all state of a queue in which nothing waits.
--
-- KEYS[1]   queue:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   only a queue that has been noted as empty for so long (ms) and has no other state; '' any
-- RETURNS   1 removed; 0 a job or suspect waits, the queue is paused, or its name is not in queues:
--           nothing was done; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 20 commands; O(log n), the server frees the rest in the background

local key, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local idle = prefix .. 'resqued:empty'
local aside = prefix .. 'resqued:suspects:' .. queue
local wrong = inway(notlist(key) or notlist(aside))
if wrong then return wrong end
if len(key) + len(aside) > 0 or query('EXISTS', prefix .. 'pause:queue:' .. queue) == 1 then return 0 end
if query('HEXISTS', prefix .. 'resqued:lined', queue) == 1 then return 0 end
local ms = now()
if ARGV[3] ~= '' then
  local since = query('ZSCORE', idle, queue)
  if type(since) ~= 'string' or tonumber(since) > ms - tonumber(ARGV[3]) then return 0 end
  if query('EXISTS', key .. ':uniqueue', key .. ':start_at', prefix .. 'resqued:deaths:' .. queue) > 0 then return 0 end
end
local known = query('SISMEMBER', prefix .. 'queues', queue)
if known == 1 then
  pruned.note(prefix, queue, ms)
  known = pcall_('SREM', prefix .. 'queues', queue)
end
pcall_('ZREM', idle, queue)
if known ~= 1 then return 0 end
forget_seen(prefix, queue)
pcall_('SREM', prefix .. 'resqued:suspects', queue)
dead.forgetall(prefix, queue)
call('UNLINK', key .. ':uniqueue', key .. ':start_at')
return 1
