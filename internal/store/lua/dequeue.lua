-- dequeue removes payloads, compared byte by byte, from a part of a queue or of one of its lines. It updates a
-- unique queue's companions.
--
-- KEYS[1]   queue:<q>, or the line
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   index of the first payload read
-- ARGV[4]   n, the number of payloads read from there
-- ARGV[5]   '' or l and the name of the line, t and the place of a tenant
-- ARGV[6…]  the payloads to remove
-- RETURNS   a text of one digit per payload: 1 removed, 0 no longer there;
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 8 commands and up to 4 per removed payload; O(n), plus the way to them from the
--           nearer end of the queue

local prefix, queue = ARGV[1], ARGV[2]
local t, wrong = taking(prefix, queue, ARGV[5], tonumber(ARGV[3]), tonumber(ARGV[4]), 6, 1)
if wrong then return inway(wrong) end
local removed = {}
for i = 1, #ARGV - 5 do removed[i] = '0' end
forget_seen(prefix, queue) -- also the first write, after which a full server accepts the rest
for _, f in ipairs(t.found) do
  t.take(f)
  t.forget(f)
  removed[f.nth] = '1'
end
t.finish()
return table.concat(removed)
