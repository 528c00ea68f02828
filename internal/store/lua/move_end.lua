-- move_end ends a batch's move to another store: it has arrived, or returns to the head of its queue.
--
-- KEYS[1]   resqued:moving:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   number of the batch
-- ARGV[4]   b: it returns
-- RETURNS   how many jobs there were, 0 if this batch is not under way; error RESQUEDTYPE or NOPERM:
--           nothing was done
-- COST      about 6 commands, and 1 per job that returns

local aside, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local moving, key = prefix .. 'resqued:moving', prefix .. 'queue:' .. queue
local wrong = inway(notlist(aside) or notlist(key))
if wrong then return wrong end
local n, number = len(aside), query('HGET', moving, 'n:' .. queue)
if n == 0 or tonumber(type(number) == 'string' and number or '') ~= tonumber(ARGV[3]) then return 0 end
if ARGV[4] == 'b' then
  forget_seen(prefix, queue)
  call('SADD', prefix .. 'queues', queue)
  local jobs = call('LRANGE', aside, 0, -1)
  for i = #jobs, 1, -1 do call('LPUSH', key, jobs[i]) end
end
call('UNLINK', aside)
call('HDEL', moving, 'to:' .. queue, 'where:' .. queue)
return n
