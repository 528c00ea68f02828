-- scheduler_lock is for fleets that share schedules with a Ruby scheduler: only the holder of
-- resque-scheduler's master lock enqueues them.
--
-- DEFINES  incharge(lock, me): true, or false and who holds the lock
-- NEEDS    base
-- KEYS     reads and writes the lock, for 180 s
-- COST     1 to 3 commands; none without a lock

-- incharge takes or keeps that lock, as the gem does, and reports whether it is ours; if not, it also
-- returns the holder. Without a lock every caller is in charge.
local function incharge(lock, me)
  if lock == '' then return true end
  if call('SET', lock, me, 'NX', 'EX', 180) then return true end
  local holder = call('GET', lock)
  if holder ~= me then return false, holder end
  call('EXPIRE', lock, 180)
  return true
end
