-- exchange_slow begins what exchange_fast has left of a call: other completions, queues with locked jobs, caps,
-- unique queues, suspects, pauses, repeated calls. Each part uses the variables of those before:
-- exchange_finish ends jobs, exchange_wants reads what is asked for, exchange_locks takes locks and grants
-- jobs, exchange_reserve, exchange_lines and exchange_fair find the jobs of one queue, and exchange_queues
-- visits the queues.
--
-- COST      5 commands

if not lockname then stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname) end

local master = ARGV[3]
local nnames, nclasses, bound, again, onsuspects, limited = match(ARGV[4], '^(%d+) (%d+) (%d+) (%d) (%a)(i?)$', headends)
nnames, nclasses, bound, again = tonumber(nnames), tonumber(nclasses), tonumber(bound), again == '1'

-- Jobs that the fast path has taken follow a longer header.
reply = {'OK', 0, 0, '', {}, {}, {}, {}, 0, {}}
for i = 1, 2 * w - 2 do reply[10 + i] = fields[i] end
for c = 1, alltold and nready or 0 do
  applied[c] = '1'
  if c <= nlocks then released[c] = ARGV[locksat + c - 1] end
end


local reasons = reply[5]

-- calm: none of these exist, as one command nearly always shows.
obstacles.calm = obstacles.known or pcall_('EXISTS', deathkey, counters, prefix .. 'resqued:relock', prefix .. 'pause:all', prefix .. 'pause-all-workers') == 0

-- line has the state of lines: known, the functions of lines if there are any lines or any may begin.
local line = {known = (obstacles.stop or pcall_('EXISTS', prefix .. 'resqued:lined') ~= 0) and linelocks(prefix), named = {}, fair = {}, late = {}}
if line.known and nwant > 0 then slots.due(prefix, line.known, ms, us) end

-- paused reports whether the queue at an index is paused, which the fast path may have checked.
function line.paused(i)
  return not (obstacles.known and i > empty and i <= obstacles.to) and paused(prefix, names[i])
end

-- page returns up to most payloads of a list from an index, in small parts until they exceed room bytes: the
-- cost of one command's result for a script grows with its square.
function line.page(key, from, most, room)
  local out, size = {}, 0
  while #out < most and size < room do
    local n = #out
    local part = call('LRANGE', key, fmt('%d', from + n), fmt('%d', from + math.min(n == 0 and 4 or n + math.min(3 * n, 64), most) - 1))
    if #part == 0 then break end
    for _, payload in ipairs(part) do out[#out + 1], size = payload, size + #payload end
  end
  return out
end

