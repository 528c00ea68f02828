-- enqueue_loner enqueues a job, unless one with the same class lock runs or waits. In another Redis than the daemon's
-- it only sets the marker; the push follows.
--
-- KEYS[1]   the lock
-- ARGV[1]   prefix
-- ARGV[2]   loner marker
-- ARGV[3]   timeout (ms, 0 none)
-- ARGV[4]   TTL of the marker (s, 0 none)
-- ARGV[5]   queue
-- ARGV[6]   payload
-- ARGV[7]   flags: u the queue is unique, s strictly; e another Redis than the daemon's
-- RETURNS   {'OK', length of the queue (0 elsewhere)}; {'LOCKED', value of the lock} a job with
--           the lock runs; {'DUPLICATE'} one waits; {'STEP'} a strict queue is out of step with
--           its companions; error RESQUEDTYPE or NOPERM. Only OK has done anything.
-- COST      about 10 commands; O(1). With a marker those of waits in classlock in addition,
--           with a unique queue those of waiting in unique.

local prefix, marker, timeout, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local queue, payload, flags = ARGV[5], ARGV[6], ARGV[7]
local unique, elsewhere = find(flags, 'u', 1, true), find(flags, 'e', 1, true)
local key = prefix .. 'queue:' .. queue
local ms = now()

local wrong = notext(KEYS[1], marker) or not elsewhere and inway(queueobstacle(key, unique) or notset(prefix .. 'queues'))
if wrong then return wrong end
local value = standing(prefix, KEYS[1], ms, elsewhere)
if value then return {'LOCKED', value} end
if marked(prefix, marker, ms, elsewhere) then return {'DUPLICATE'} end
if unique and not elsewhere then
  if find(flags, 's', 1, true) and not instep(key, len(key)) then return {'STEP'} end
  if waiting(key, payload, len(key)) then return {'DUPLICATE'} end
end

value = classvalue(ms, timeout, markname(queue, payload))
if ttl == '0' then call('SET', marker, value) else call('SET', marker, value, 'EX', ttl) end
if elsewhere then return {'OK', 0} end
call('SADD', prefix .. 'queues', queue)
if unique then return {'OK', upush(key, payload, fmt('%.0f', math.floor(ms / 1000)), false)} end
return {'OK', call('RPUSH', key, payload)}
