-- move_suspects moves quarantined jobs of a queue behind those of another queue, with their death counts and loner
-- markers.
--
-- KEYS[1]   resqued:suspects:<from>
-- ARGV[1]   prefix
-- ARGV[2]   from
-- ARGV[3]   to, another queue
-- ARGV[4…]  per job to move: the element of the list, the key of its loner marker or ''
-- RETURNS   how many were moved, without those no longer there; error RESQUEDTYPE or NOPERM: nothing
--           was done
-- COST      about 6 commands, and up to 13 per job; O(n), and the length of the list for each

local key, prefix, from, to = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local target, names = apartkey(prefix, to), prefix .. 'resqued:suspects'
local wrong = inway(notlist(key) or notlist(target) or notset(names) or notset(prefix .. 'queues'))
if wrong then return wrong end
if len(key) == 0 then return apart(prefix, from) end -- this also tidies up
local ms, moved = now(), 0

call('PERSIST', key) -- a full server must not reject the rest
call('SADD', names, to)
call('SADD', prefix .. 'queues', to)
for i = 4, #ARGV, 2 do
  local element, marker = ARGV[i], ARGV[i + 1]
  if call('LREM', key, 1, element) == 1 then
    moved = moved + 1
    call('RPUSH', target, element)
    local payload = suspect(element)
    dead.copy(prefix, from, to, payload, ms)
    dead.forget(prefix, from, payload)
    if marker ~= '' then remark(marker, from, to, payload) end
  end
end
apart(prefix, to)
apart(prefix, from)
return moved
