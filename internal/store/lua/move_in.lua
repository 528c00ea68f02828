-- move_in pushes a batch of payloads from another store to the tail of a queue: once, however often it is called and
-- whatever happened to the replies.
--
-- KEYS[1]   queue:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   an id for this store, if it has none yet
-- ARGV[4]   the other store's id
-- ARGV[5]   number of the batch
-- ARGV[6…]  the payloads; none = only the id is wanted
-- RETURNS   {id of this store; 1 pushed, 0 already pushed, -1 the number belongs to another or an
--           older batch: nothing was pushed; the last number}; error RESQUEDTYPE or NOPERM: nothing
--           was done
-- COST      4 commands and 1 per payload

local key, prefix, queue = KEYS[1], ARGV[1], ARGV[2]
local moved, from = prefix .. 'resqued:moved', ARGV[4] .. ':' .. queue
local known = query('HMGET', moved, 'id', from)
local queues = prefix .. 'queues'
local wrong = inway(known.err and moved .. ' is not a hash' or notlist(key) or notset(queues))
if wrong then return wrong end
local id = known[1] or ARGV[3]
if #ARGV < 6 then
  if not known[1] then call('HSET', moved, 'id', id) end
  return {id, 0, 0}
end

local number, digest = tonumber(ARGV[5]), ''
for i = 6, #ARGV do digest = redis.sha1hex(digest .. redis.sha1hex(ARGV[i])) end
local last, was = match(known[2] or '', '^(%d+) (%x+)$')
last = tonumber(last) or 0
if number <= last then return {id, number == last and was == digest and 0 or -1, last} end

-- The first write is one that a full server refuses, or it would accept jobs without end.
call('HSET', moved, 'id', id, from, fmt('%.0f', number) .. ' ' .. digest)
call('SADD', queues, queue)
for i = 6, #ARGV do call('RPUSH', key, ARGV[i]) end
forget_seen(prefix, queue)
return {id, 1, number}
