-- acquire takes the class lock of a job in hand. Taken again for the same job, it
-- only begins its time anew, so that the call may be repeated.
--
-- KEYS[1] resqued:inflight:<proc>; in another Redis than the daemon's the lock
-- ARGV    prefix, proc, token, lock, timeout (ms, 0 none), TTL (s), loner marker or
--         '', elsewhere (1: another Redis), the job's queue and payload (only there), how
--         long the lease has to last yet (ms)
-- RETURNS {'FENCED'} if the process has no valid lease, has not beaten for long, or locks
--         are not to be given now (see grace); {'LATE'} if the job has no
--         record any more: nothing was done; {'OK', value}; {'HELD', value in the way}

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
  if type(pcall_('HLEN', heldkey)) ~= 'number' then
    return redis.error_reply('RESQUEDTYPE ' .. heldkey .. ' is no hash; move it away')
  end
  call('PERSIST', KEYS[1]) -- see register: a full server must not refuse the rest
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
-- Got or not: the job waits no longer.
if marker ~= '' then unmark(marker, markname(queue, payload)) end
return reply
