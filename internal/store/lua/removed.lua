-- removed forgets the schedules that were kept in persistent_schedules, and are not any more.
-- Those of a configuration are not touched: the daemons that have them know when they end.
--
-- KEYS[1] resqued:schedules
-- ARGV    prefix
-- RETURNS how many

local prefix, n = ARGV[1], 0
local cron = prefix .. 'resqued:cron'
need(KEYS[1], 'HDEL')
need(cron, 'HDEL')
local shown = pcall_('HGETALL', KEYS[1])
if refused(shown) then
  checked(shown)
  return 0
end
for i = 1, #shown, 2 do
  if sub(shown[i + 1], -13) == ',"kept":true}' and query('HEXISTS', prefix .. 'persistent_schedules', shown[i]) == 0 then
    call('HDEL', KEYS[1], shown[i])
    pcall_('HDEL', cron, shown[i])
    n = n + 1
  end
end
return n
