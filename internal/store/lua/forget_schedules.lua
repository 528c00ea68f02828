-- forget_schedules removes the state of schedules that were removed from persistent_schedules. For schedules of a
-- configuration, the daemons know when they end, and name those to forget.
--
-- KEYS[1]   resqued:schedules
-- ARGV[1]   prefix
-- ARGV[2]   cursor ('0' begins)
-- ARGV[3…]  name and note (see schedules) of each schedule that no daemon has any more
-- RETURNS   next cursor ('0': that was all); error NOPERM: nothing was done
-- COST      4 commands per named schedule, 1, and up to 4 per schedule that is checked; O(n), at
--           most about 1,000 schedules per call

local prefix = ARGV[1]
local cron = prefix .. 'resqued:cron'
local notes = prefix .. 'resqued:schedules:kept'
for i = 3, #ARGV, 2 do
  -- A daemon that got it since has written another note.
  if query('HGET', notes, ARGV[i]) == ARGV[i + 1] then
    call('HDEL', notes, ARGV[i])
    pcall_('HDEL', KEYS[1], ARGV[i])
    pcall_('HDEL', cron, ARGV[i])
  end
end
local part = pcall_('HSCAN', KEYS[1], ARGV[2], 'COUNT', 1000)
if refused(part) then
  checked(part)
  return '0'
end
local shown = part[2]
for i = 1, #shown, 2 do
  if sub(shown[i + 1], -13) == ',"kept":true}' and query('HEXISTS', prefix .. 'persistent_schedules', shown[i]) == 0 then
    call('HDEL', KEYS[1], shown[i])
    pcall_('HDEL', cron, shown[i])
    pcall_('HDEL', notes, shown[i])
  end
end
return part[1]
