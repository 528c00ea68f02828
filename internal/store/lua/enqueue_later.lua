-- enqueue_later enqueues jobs that are to run later.
--
-- KEYS[1]   delayed_queue_schedule
-- ARGV[1]   prefix
-- ARGV[2]   id of the call
-- ARGV[3…]  per job: queue, payload, whether the queue is unique (1|0), when: a time (ms since
--           1970), or with a "+" in front how long from now on (ms)
-- RETURNS   {a text of one letter for each job: what delay returns, or x (nothing was done),
--           {for each job: when it is due (ms) if it waits, length of the queue if it was
--           pushed, else 0}, {the reason of each x}}
-- COST      1 command, and about 8 per job; O(n). A job of a unique queue whose time has come
--           costs what putback of unique does.

local prefix, id, ms = ARGV[1], ARGV[2], (now())
local done, numbers, reasons = {}, {}, {}
for i = 3, #ARGV, 4 do
  local queue, payload, unique, when = ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1', ARGV[i + 3]
  local due = sub(when, 1, 1) == '+' and ms + tonumber(sub(when, 2)) or tonumber(when)
  local how, number = 'x', 0
  local reason = delayobstacle(prefix, queue, unique, due)
  if reason then
    reasons[#reasons + 1] = reason
  else
    how, number = delay(prefix, queue, payload, unique, due, id .. fmt('#%05d', i))
    if how == 'q' then number = call('LLEN', prefix .. 'queue:' .. queue) end
  end
  done[#done + 1] = how
  numbers[#numbers + 1] = fmt('%.0f', number or 0)
end
return {table.concat(done), numbers, reasons}
