-- enqueue_later enqueues jobs to run later.
--
-- KEYS[1]   delayed_queue_schedule
-- ARGV[1]   prefix
-- ARGV[2]   id of the call
-- ARGV[3…]  per job: queue, payload, whether the queue is unique (1|0), when: a time (ms since
--           1970), or "+" and a delay (ms)
-- RETURNS   {one letter per job: the result of delay, or x (nothing was done),
--           {per job: when it is due (ms) if it waits, the queue's length if it was pushed,
--           else 0}, {the reason of each x}}
-- COST      1 command, and about 8 per job; O(n). A due job of a unique queue costs as much as
--           putback of unique.

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
