-- charge is for fleets in which a Ruby scheduler has the same schedules: who holds the
-- master lock of resque-scheduler is in charge, and nobody else.

-- incharge takes or keeps that lock, as the gem does, and reports whether it is ours. If
-- not it also returns whose it is. Without a lock everybody is in charge.
local function incharge(lock, me)
  if lock == '' then return true end
  if call('SET', lock, me, 'NX', 'EX', 180) then return true end
  local holder = call('GET', lock)
  if holder ~= me then return false, holder end
  call('EXPIRE', lock, 180)
  return true
end
