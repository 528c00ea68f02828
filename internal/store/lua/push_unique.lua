-- push_unique appends payloads to a unique queue, each unless an equal one waits.
--
-- KEYS[1]   queue:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   strict (1|0)
-- ARGV[4…]  the payloads
-- RETURNS   {'STEP'} the queue is strict and out of step with its companions: nothing was done;
--           else {length of the queue, a text of one digit per payload: 1 pushed, 0 a duplicate};
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      5 commands, and those of upush in unique per payload, about 8; O(n), and a search
--           through up to 1,000 elements for each in a short queue

local key, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local wrong = inway(queueobstacle(key, true))
if wrong then return wrong end
local n = len(key)
if ARGV[3] == '1' and not instep(key, n) then return {'STEP'} end
local ms = now()
local start = fmt('%.0f', math.floor(ms / 1000))
call('SADD', prefix .. 'queues', queue)
local pushed = {}
for i = 4, #ARGV do
  local length = upush(key, ARGV[i], start, false)
  n = length or n
  pushed[#pushed + 1] = length and '1' or '0'
end
return {n, table.concat(pushed)}
