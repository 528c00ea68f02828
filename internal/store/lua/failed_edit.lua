-- failed_edit marks failure records as retried and pushes their jobs, or removes records, in place: only records
-- that are still there, byte by byte.
--
-- KEYS[1]   failed, or another list of failure records
-- ARGV[1]   prefix
-- ARGV[2]   name of the list
-- ARGV[3]   1: a record is only edited in its own place, as an equal one is another failure
-- ARGV[4…]  the edits, of six arguments each, see failed_edits
-- RETURNS   a text of one letter per record: r (done), u (marked as retried; an equal job waits, so
--           nothing was pushed), g (not there, nor up to 200 places before it unless only its
--           place counts), x (its queue's key has the wrong type; nothing was done), b (a
--           failed_edit_bulk of the list is under way; nothing was done);
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 8 commands, and 1 to 6 per edit; O(n), and per edit the way to its record from
--           the nearer end of the list. With a unique queue those of putback.

local key, prefix = KEYS[1], ARGV[1]
if pcall_('HEXISTS', siftkeys(prefix, ARGV[2]), ARGV[2]) == 1 then return string.rep('b', (#ARGV - 3) / 6) end
local wrong = unfit(prefix, key)
if wrong then return wrong end
local n = len(key)

local places, first = {}, 1 -- places count from 1
if ARGV[3] == '1' then
  for i = 4, #ARGV, 6 do
    local index = tonumber(ARGV[i])
    if call('LINDEX', key, index) == ARGV[i + 1] then places[i] = index end
  end
else
  -- Removals before them have moved the rest toward the head.
  local low, high = math.huge, 0
  for i = 4, #ARGV, 6 do
    local index = tonumber(ARGV[i])
    low, high = math.min(low, index), math.max(high, index)
  end
  first = math.max(0, low - 200)
  places = placed(4, call('LRANGE', key, first, high), first)
end

call('PERSIST', key) -- the first write, after which a full server accepts the rest
local done = {}
local ms = now()
local start = fmt('%.0f', math.floor(ms / 1000))
local hole, holes, lowest = '\0' .. redis.sha1hex(key .. ms), 0, n
for i = 4, #ARGV, 6 do
  local at, how = places[i] and first + places[i] - 1, 'g'
  if at then how = pushes(prefix, i, start) end
  if how == 'r' or how == 'u' then
    if ARGV[i + 2] == '' then
      call('LSET', key, at, hole)
      holes, lowest = holes + 1, math.min(lowest, at)
    else
      call('LSET', key, at, ARGV[i + 2])
    end
  end
  done[#done + 1] = how
end
if holes > 0 then call('LREM', key, lowest < n / 2 and holes or -holes, hole) end
return table.concat(done)
