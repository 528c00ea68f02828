-- exchange_slow begins what exchange_fast has left of a call: other completions, queues with locked jobs,
-- caps, unique queues, suspects, pauses, repeated calls. It goes on with the variables of exchange_fast, and
-- each part behind it with those before: exchange_finish ends jobs, exchange_wants reads what is asked for,
-- exchange_locks takes locks and grants jobs, exchange_reserve, exchange_lines and exchange_fair find the jobs of
-- one queue, and exchange_queues goes through the queues.
--
-- COST      5 commands

if not lockname then stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname) end

local master = ARGV[3]
local nnames, nclasses, bound, again, onsuspects = match(ARGV[4], '^(%d+) (%d+) (%d+) (%d) (%a)$', headends)
nnames, nclasses, bound, again = tonumber(nnames), tonumber(nclasses), tonumber(bound), again == '1'

-- The jobs that the fast path has taken so far stand behind more in front.
reply = {'OK', 0, 0, '', {}, {}, {}, {}, 0, {}}
for i = 1, 2 * w - 2 do reply[10 + i] = fields[i] end
for c = 1, alltold and nready or 0 do
  applied[c] = '1'
  if c <= nlocks then released[c] = ARGV[locksat + c - 1] end
end


local reasons = reply[5]

-- There is nothing of all this, which one command shows nearly always.
obstacles.calm = obstacles.known or pcall_('EXISTS', deathkey, counters, prefix .. 'resqued:relock', prefix .. 'pause:all', prefix .. 'pause-all-workers') == 0

-- line has what is done with lines: known, if there are any or any may begin, what lines has.
local line = {known = (obstacles.stop or pcall_('EXISTS', prefix .. 'resqued:lined') ~= 0) and linelocks(prefix), named = {}, fair = {}, late = {}}

-- paused reports whether the queue of an index is, which the fast path may have seen of some.
function line.paused(i)
  return not (obstacles.known and i > empty and i <= obstacles.to) and paused(prefix, names[i])
end

-- page returns up to most payloads of a list from an index on, a few at a time until these are more bytes than there
-- is room for: what one command returns to a script is put together at a cost that grows with the square.
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

