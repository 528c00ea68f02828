-- misfit records delayed items that are no jobs as failed, each once.
--
-- KEYS[1] failed
-- ARGV    prefix, then per item: its key, the item, the failure record, the id to which
--         that refers if the item is too large for it, else ''
-- RETURNS how many

local prefix, n = ARGV[1], 0
if not len(KEYS[1]) then return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is no list; move it away') end
need(KEYS[1], 'RPUSH', 'PERSIST')
need(prefix .. 'delayed:', 'LREM')
need(prefix .. 'resqued:delayed', 'ZREM')
local wrong = parked.lacks(prefix)
if wrong then return redis.error_reply(match(wrong, '^NOPERM') and wrong or 'RESQUEDTYPE ' .. wrong .. '; move it away') end
call('PERSIST', KEYS[1]) -- the first write: a full server does not refuse the rest
for i = 2, #ARGV, 4 do
  local key, item = ARGV[i], ARGV[i + 1]
  local gone
  if key == prefix .. 'resqued:delayed' then
    gone = pcall_('ZREM', key, item)
  else
    gone = pcall_('LREM', key, 1, item)
    pcall_('SREM', prefix .. 'timestamps:' .. item, sub(key, #prefix + 1))
  end
  if gone == 1 then
    local id = ARGV[i + 3]
    if id ~= '' then parked.keep(prefix, id, 'l', now(), '', '-', item, 'too large for its failure record', 0, '') end
    call('RPUSH', KEYS[1], ARGV[i + 2])
    n = n + 1
  end
end
return n
