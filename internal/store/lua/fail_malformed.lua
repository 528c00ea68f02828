-- fail_malformed records delayed items that are not jobs as failed, each once.
--
-- KEYS[1]   failed
-- ARGV[1]   prefix
-- ARGV[2]   m: the failures go to the list without a queue, as in Resque's multi-queue failure
--           backend; else ''
-- ARGV[3]   the oldest format that the caller reads
-- ARGV[4]   the newest one; if another one was written here, items of resqued:delayed may be
--           jobs of other processes, and stay
-- ARGV[5…]  per item: its key, the item, its failure record, the id under which the item is kept
--           if it is too large for the record, else ''
-- RETURNS   how many were recorded; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 9 commands, and 3 to 7 per item; O(n), and the length of the list for an item in one

local prefix, n = ARGV[1], 0
local list = ARGV[2] == 'm' and parked.listed(prefix, '') or 'failed'
local target = prefix .. list
local wrong = inway(notlist(target) or parked.obstacle(prefix))
if wrong then return wrong end
call('PERSIST', target) -- the first write, after which a full server accepts the rest
local foreign = unread(pcall_('HGET', prefix .. 'resqued:meta', 'format'), ARGV[3], ARGV[4])
for i = 5, #ARGV, 4 do
  local key, item = ARGV[i], ARGV[i + 1]
  local gone
  if key == prefix .. 'resqued:delayed' then
    gone = not foreign and pcall_('ZREM', key, item)
  else
    gone = pcall_('LREM', key, 1, item)
    pcall_('SREM', prefix .. 'timestamps:' .. item, sub(key, #prefix + 1))
  end
  if gone == 1 then
    local id = ARGV[i + 3]
    parked.file(prefix, list, id, (now()), {queue = '', start = '-', payload = item}, ARGV[i + 2], 0, id ~= '')
    n = n + 1
  end
end
return n
