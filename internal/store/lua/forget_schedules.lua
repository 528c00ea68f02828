-- removed forgets the schedules that were kept in persistent_schedules, and are not any more.
-- Those of a configuration are not touched: the daemons that have them know when they end,
-- and name those that are to be forgotten, too.
--
-- KEYS[1] resqued:schedules
-- ARGV    prefix, cursor ('0' begins); name and note (see schedules) of each schedule that
--         has no daemon any more
-- RETURNS cursor to go on from; '0': that was all

local prefix = ARGV[1]
local cron = prefix .. 'resqued:cron'
local notes = prefix .. 'resqued:schedules:kept'
need(KEYS[1], 'HDEL')
need(cron, 'HDEL')
need(notes, 'HDEL')
for i = 3, #ARGV, 2 do
  -- A daemon that has come meanwhile has written another note.
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
