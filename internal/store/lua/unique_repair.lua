-- unique_repair goes a step on with healing a unique queue; see unique.
--
-- KEYS[1]   queue:<q>
-- ARGV[1]   prefix
-- ARGV[2]   how: b begin anew, g go on (no other caller does meanwhile), p only if the queue is
--           out of step, and not before its healing has rested; e remove its set and its times
--           if nothing waits, a remove them: it is unique no more
-- RETURNS   {0 nothing to do, 1 there is more, 2 that was the last step; ms to rest,
--           jobs, elements looked at, members in, out, duplicates dropped, times in,
--           out}; error RESQUEDTYPE or NOPERM; error of the server that refuses
--           the first write; with both nothing was done
-- COST      those of heal in unique: up to 1,000 elements of the queue, or 1 MB of them

local key, how = KEYS[1], ARGV[2]
local n = len(key)
needlist(key)
needcompanions(ARGV[1])
if not n then return redis.error_reply('RESQUEDTYPE ' .. key .. ' is no list; move it away') end
if how == 'a' or how == 'e' then
  local all = how == 'a' or n == 0
  if all then call('UNLINK', key .. ':uniqueue', key .. ':start_at', healkeys(key)) end
  return {all and 2 or 0, 0, n, 0, 0, 0, 0, 0, 0}
end
if not utyped(key) then
  return redis.error_reply('RESQUEDTYPE ' .. key .. ':uniqueue is no set or ' .. key .. ':start_at no list; move it away')
end
local h = healing(key)
if how == 'p' and not h.at and instep(key, n) and twins.many(key) == 0 then return {0, 0, n, 0, 0, 0, 0, 0, 0} end
if how == 'b' then h.at, h.second, h.twins = nil, nil, 0 end
local left, r = heal(key, n, how ~= 'p')
if r.refused then return redis.error_reply(r.refused) end
if r.duplicates > 0 then forget_seen(ARGV[1], sub(key, #ARGV[1] + 7)) end -- what was dropped stood anywhere
local rest = how == 'p' and math.max(0, h.rest - (now())) or 0
return {r.done and (how == 'p' and r.quiet and 0 or 2) or 1, rest, left, r.touched, r.membersin, r.membersout, r.duplicates, r.timesin, r.timesout}
