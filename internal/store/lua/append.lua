-- append pushes payloads to a queue that is not unique, as Resque does. It stands
-- alone, without lib: most of what a push costs would be lib's.
--
-- KEYS[1] queue:<q>
-- ARGV    the set of queues, queue, then the payloads
-- RETURNS the length of the queue

local held = redis.pcall('LLEN', KEYS[1])
if type(held) == 'table' and string.find(held.err, 'WRONGTYPE', 1, true) then
  return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is no list; move it away')
end
-- The queue's name is known before its first job is there.
redis.call('SADD', ARGV[1], ARGV[2])
local length
for i = 3, #ARGV, 500 do
  length = redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 499, #ARGV)))
end
return length
