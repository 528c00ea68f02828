-- move_out takes payloads, compared byte by byte, from a part of a queue or of one of its lines, and sets them
-- aside as a numbered batch on its way to another store. A queue has one batch under way at a time: while there
-- is one, it is returned, and nothing is taken.
--
-- KEYS[1]   queue:<q>, or the line
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   the other store's id
-- ARGV[4]   its name for people
-- ARGV[5]   an id for this store, if it has none yet
-- ARGV[6]   the least number for a batch that now has the number after this
-- ARGV[7]   that number: any other batch keeps its own, which another caller may have delivered
-- ARGV[8]   index of the first payload read
-- ARGV[9]   n, the number of payloads read from there
-- ARGV[10]  '' or l and the name of the line, t and the place of a tenant
-- ARGV[11…] the payloads to take; none = only return the batch under way
-- RETURNS   {id of this store, number, id of the other store, its name for people, {payload, …}}; the
--           number is 0 if nothing is under way; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 12 commands and 2 per payload; O(n), plus the way to them from the nearer end of
--           the queue

local prefix, queue, least = ARGV[1], ARGV[2], tonumber(ARGV[6])
local moving, aside = prefix .. 'resqued:moving', prefix .. 'resqued:moving:' .. queue
local wrong = notlist(aside)
if wrong then return inway(wrong) end
local known = query('HMGET', moving, 'id', 'n:' .. queue, 'to:' .. queue, 'where:' .. queue)
if known.err then return inway(moving .. ' is not a hash') end
local id, number = known[1] or ARGV[5], tonumber(known[2]) or 0
if len(aside) > 0 then
  if number < least and number == tonumber(ARGV[7]) then
    number = least
    call('HSET', moving, 'n:' .. queue, fmt('%.0f', number))
  end
  return {id, number, known[3] or '', known[4] or '', call('LRANGE', aside, 0, -1)}
end
local home = prefix .. 'queue:' .. queue
if #ARGV < 11 or call('EXISTS', home .. ':uniqueue', home .. ':start_at') > 0 then return {id, 0, '', '', {}} end
local t, obstacle = taking(prefix, queue, ARGV[10], tonumber(ARGV[8]), tonumber(ARGV[9]), 11, 1)
if obstacle then return inway(obstacle) end
if #t.found == 0 then return {id, 0, '', '', {}} end

number = number + 1
forget_seen(prefix, queue) -- also the first write, after which a full server accepts the rest
call('HSET', moving, 'id', id, 'n:' .. queue, fmt('%.0f', number), 'to:' .. queue, ARGV[3], 'where:' .. queue, ARGV[4])
local taken = {}
for i, f in ipairs(t.found) do
  taken[i] = f.payload
  call('RPUSH', aside, f.payload)
  t.take(f)
  t.forget(f)
end
t.finish()
return {id, number, ARGV[3], ARGV[4], taken}
