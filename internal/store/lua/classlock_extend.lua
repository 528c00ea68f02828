-- classlock_extend restarts the time of a class lock for any holder. The lock never ends earlier than without
-- the call.
--
-- KEYS[1]   the lock
-- ARGV[1]   prefix
-- ARGV[2]   timeout (ms, 0 none)
-- ARGV[3]   elsewhere: 1 in another Redis than the daemon's, else 0
-- RETURNS   1 the lock is held; 0 it is not; error RESQUEDTYPE: the key is not a string
-- COST      at most 8 commands; O(1)

local wrong = notext(KEYS[1])
if wrong then return wrong end
local prefix, timeout, elsewhere = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local ms = now()
local value = standing(prefix, KEYS[1], ms, elsewhere)
if not value then return 0 end
local old = tonumber(match(value, '^(%d+)'))
if not old or timeout == 0 then return 1 end
local epoch = math.ceil((ms + timeout) / 1000)
if epoch <= old then return 1 end
local name = nameof(value)
value = fmt('%.0f', epoch) .. (name and ':' .. name or '')
local ttl = call('TTL', KEYS[1])
if ttl < 0 then
  call('SET', KEYS[1], value) -- the gem's own
else
  call('SET', KEYS[1], value, 'EX', ttl + epoch - old)
end
local p, t = match(name or '', '^resqued:(.*)#([^#]*)$')
if p and not elsewhere then
  local heldkey = prefix .. 'resqued:held:' .. p
  if type(pcall_('HGET', heldkey, t)) == 'string' then call('HSET', heldkey, t, held_pack(KEYS[1], value)) end
end
return 1
