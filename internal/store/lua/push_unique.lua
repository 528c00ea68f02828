-- push appends payloads to a unique queue: each one unless an equal one waits there.
--
-- KEYS[1] queue:<q>
-- ARGV    prefix, queue, strict (1|0), then the payloads
-- RETURNS {'STEP'} if the queue is strict and its companions do not match it: nothing
--         was done; else {length of the queue, one of 1 (pushed) 0 (a duplicate) for
--         each payload as one text}

local key, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local n = len(key)
if not n then return redis.error_reply('RESQUEDTYPE ' .. key .. ' is no list; move it away') end
if not utyped(key) then
  return redis.error_reply('RESQUEDTYPE ' .. key .. ':uniqueue is no set or ' .. key .. ':start_at no list; move it away')
end
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
