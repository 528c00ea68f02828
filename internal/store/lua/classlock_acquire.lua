-- classlock_acquire takes the class lock of a job in hand. A repeated call for the same job only restarts the lock's
-- time.
--
-- KEYS[1]   resqued:inflight:<proc>; elsewhere the lock
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   token
-- ARGV[4]   lock
-- ARGV[5]   timeout (ms, 0 none)
-- ARGV[6]   TTL of the key (s)
-- ARGV[7]   loner marker to remove, or ''
-- ARGV[8]   elsewhere: 1 in another Redis than the daemon's, else 0
-- ARGV[9]   queue of the job; used only elsewhere, where jobs have no records
-- ARGV[10]  payload of the job; used only elsewhere
-- ARGV[11]  how long the lease must still last (ms)
-- RETURNS   {'FENCED'} the process has no valid lease, has not beaten for too long, or locks are
--           not given now (see grace); {'LATE'} the job no longer has a record; both mean that
--           nothing was done. {'OK', value}; {'HELD', value in the way};
--           error RESQUEDTYPE: a key has the wrong type, nothing was done
-- COST      at most 15 commands; O(1)

local prefix, proc, token, lock = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local timeout, ttl, marker, elsewhere = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8] == '1'
local ms = now()
local queue, payload = ARGV[9], ARGV[10]
local wrong = notext(lock, marker)
if wrong then return wrong end

local heldkey = prefix .. 'resqued:held:' .. proc
if not elsewhere then
  local lease = tonumber(query('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
  if not lease or lease < ms + tonumber(ARGV[11]) or pcall_('ZCARD', prefix .. 'resqued:relock') ~= 0 then return {'FENCED'} end
  local raw = pcall_('HGET', KEYS[1], token)
  local record = type(raw) == 'string' and unpack_(raw)
  if not record then return {'LATE'} end
  queue, payload = record.queue, record.payload
  if type(query('HLEN', heldkey)) ~= 'number' then return inway(heldkey .. ' is not a hash') end
  call('PERSIST', KEYS[1]) -- see register: a full server must not reject the rest
end

local name = owner(proc, token)
local value = standing(prefix, lock, ms, elsewhere)
local reply
if value and nameof(value) ~= name then
  reply = {'HELD', value}
else
  value = classvalue(ms, timeout, name)
  call('SET', lock, value, 'EX', ttl)
  if not elsewhere then call('HSET', heldkey, token, held_pack(lock, value)) end
  reply = {'OK', value}
end
-- With or without the lock, the job no longer waits.
if marker ~= '' then unmark(marker, markname(queue, payload)) end
return reply
