-- prune_queue removes the name of a queue in which nothing waits, with all that is known of it.
--
-- KEYS[1]   queue:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   only one that was noted as empty so long ago (ms), and of which nothing else is known; '' any
-- RETURNS   1 removed; 0 something waits in it or beside it, it is paused, or it is not a name of a
--           queue: nothing was done; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 20 commands; O(log n), the server frees what is left in the background

local key, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local idle = prefix .. 'resqued:empty'
local n, beside = len(key), len(prefix .. 'resqued:suspects:' .. queue)
if not n or not beside then return redis.error_reply('RESQUEDTYPE ' .. key .. ' is not a list; move it away') end
if n + beside > 0 or query('EXISTS', prefix .. 'pause:queue:' .. queue) == 1 then return 0 end
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
