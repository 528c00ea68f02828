-- remove_queue removes a queue with all of its state, or empties it.
--
-- KEYS[1]   queue:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   keep: 1 its name stays among the queues
-- RETURNS   how many jobs waited in it, including suspects;
--           error RESQUEDTYPE: the key is not a list, nothing was done
-- COST      about 14 commands; O(1), the server frees the jobs in the background

local key, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local n = len(key)
if not n then return inway(notlist(key)) end
if ARGV[3] ~= '1' then
  if query('SISMEMBER', prefix .. 'queues', queue) == 1 then pruned.note(prefix, queue, (now())) end
  pcall_('SREM', prefix .. 'queues', queue)
  pcall_('ZREM', prefix .. 'resqued:empty', queue)
end
forget_seen(prefix, queue)
n = n + apart(prefix, queue)
pcall_('SREM', prefix .. 'resqued:suspects', queue)
dead.forgetall(prefix, queue)
call('UNLINK', key, apartkey(prefix, queue), key .. ':uniqueue', key .. ':start_at')
return n
