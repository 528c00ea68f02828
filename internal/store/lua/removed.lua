-- removed forgets the schedules that were kept in persistent_schedules, and are not any more.
-- Those of a configuration are not touched: the daemons that have them know when they end.
--
-- KEYS[1] resqued:schedules
-- ARGV    prefix, cursor ('0' begins)
-- RETURNS cursor to go on from; '0': that was all

local prefix = ARGV[1]
local cron = prefix .. 'resqued:cron'
need(KEYS[1], 'HDEL')
need(cron, 'HDEL')
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
  end
end
return part[1]
