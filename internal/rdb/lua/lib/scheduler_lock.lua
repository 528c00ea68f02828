-- scheduler_lock is for fleets in which a Ruby scheduler has the same schedules: only who holds
-- the master lock of resque-scheduler enqueues them.
--
-- DEFINES  incharge(lock, me): true, or false and who holds the lock
-- NEEDS    base
-- KEYS     reads and writes the lock, for 180 s
-- COST     1 to 3 commands; none without a lock

-- incharge takes or keeps that lock, as the gem does, and reports whether it is ours. If
-- not it also returns whose it is. Without a lock every caller is in charge.
local function incharge(lock, me)
  if lock == '' then return true end
  if call('SET', lock, me, 'NX', 'EX', 180) then return true end
  local holder = call('GET', lock)
  if holder ~= me then return false, holder end
  call('EXPIRE', lock, 180)
  return true
end
