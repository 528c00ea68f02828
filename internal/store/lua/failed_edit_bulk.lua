-- failed_edit_bulk edits very many failure records of a long list, in steps whose cost does not depend on its length.
-- In the middle of a list, each access costs the way there, and each removal the way through; only the ends are
-- cheap. So each step moves records from the head, edited or not, to resqued:passed:<list>, which replaces the list
-- at the end. Readers meanwhile read that list first, then the rest. New records are added as always.
--
-- Ruby empties a record just before it removes it by its text. If that record passes meanwhile, Ruby cannot find it,
-- so it is removed here.
--
-- resqued:sifting says who sifts and until when; after that, any caller may return the records with "back".
--
-- KEYS[1]   failed, or another list of failure records
-- ARGV[1]   prefix
-- ARGV[2]   name of the list
-- ARGV[3]   token of the caller
-- ARGV[4]   how long the caller must not be disturbed (ms)
-- ARGV[5]   op:
--           begin
--           step: edits the records at the head
--           on: passes the next records unchanged
--           back: returns the last records to the list, also those of a caller whose time is up
--           drop: removes the records that the caller saw in the list, as a whole if few were
--           added since, else from the head; nothing while payloads are parked, to which they may
--           refer
-- ARGV[6]   of step: how many records were read from the head; of drop: how many the list had
-- ARGV[7]   of step, drop: the last of them
-- ARGV[8]   of drop: the first of them
-- ARGV[8…]  of step: the edits, of six arguments each, see failed_edits
-- RETURNS   {'HELD', ms} another caller is editing it for that long; {'LOST'} the caller is no
--           longer editing it; {'LEFT'} (begin, drop) records must be brought back first;
--           {'KEPT'} (drop) something is parked; begin: {'OK'};
--           step: {'MOVED'} others have changed the list's head, nothing was done, or
--           {'OK', how many records have passed, one letter per edit as one text, as in
--           failed_edit}; on, back: {'OK', how many records are still to be moved, 0: it has
--           ended}; drop: {'MOVED'} the first or the last record has moved, nothing was done, or
--           {'OK', how many were removed, how many of them are left, the first of these};
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 12 commands; step: 1 to 6 per edit and 1 per 500 records, O(records read);
--           on, back: up to 600 records or 256 kB, 5 commands per 50 records; drop: O(records
--           added since), up to 100, the server frees the list in the background; else up to 500
--           records, and the way to the last

local key, prefix, name, token, lease, op = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local sifting, passed = siftkeys(prefix, name)
local ms = now()
local wrong = inway(type(query('HLEN', sifting)) ~= 'number' and sifting .. ' is not a hash' or notlist(passed)) or unfit(prefix, key)
if wrong then return wrong end

local holder, ends = match(call('HGET', sifting, name) or '', '^(%S+) (%d+)$')
if holder and holder ~= token and tonumber(ends) > ms then return {'HELD', tonumber(ends) - ms} end
if op == 'begin' or op == 'drop' then
  if holder and holder ~= token or call('EXISTS', passed) == 1 then return {'LEFT'} end
elseif op ~= 'back' and holder ~= token then
  return {'LOST'}
end
if op == 'drop' then
  local kept = pcall_('HLEN', prefix .. 'resqued:parked')
  if type(kept) == 'number' and kept > 0 then return {'KEPT'} end
  local n, total = tonumber(ARGV[6]), len(key)
  -- New records come at the end. If others have removed some, the last record is before its place.
  local from, at = math.max(0, n - 201), nil
  if call('LINDEX', key, n - 1) == ARGV[7] then
    at = n
  else
    local part = call('LRANGE', key, from, n - 1)
    for i = #part, 1, -1 do
      if part[i] == ARGV[7] then
        at = from + i
        break
      end
    end
  end
  if not at or call('LINDEX', key, 0) ~= ARGV[8] then return {'MOVED'} end
  call('PERSIST', key) -- the first write, after which a full server accepts the rest
  if total - at > 100 then
    local some = math.min(at, 500)
    call('LTRIM', key, some, -1)
    if some == at then
      call('HDEL', sifting, name)
      return {'OK', some, 0}
    end
    call('HSET', sifting, name, token .. ' ' .. fmt('%.0f', ms + lease))
    return {'OK', some, at - some, call('LINDEX', key, 0)}
  end
  local new = total > at and call('LRANGE', key, at, -1)
  call('UNLINK', key)
  if new then call('RPUSH', key, unpack(new)) end
  call('HDEL', sifting, name)
  return {'OK', at, 0}
end
call('PERSIST', key) -- the first write, after which a full server accepts the rest
call('HSET', sifting, name, token .. ' ' .. fmt('%.0f', ms + lease))
if op == 'begin' then return {'OK'} end

-- over ends the sifting, with one list again.
local function over()
  if call('EXISTS', passed) == 1 then call('RENAME', passed, key) end
  call('HDEL', sifting, name)
  return {'OK', 0}
end

if op == 'on' or op == 'back' then
  local moved, bytes, on = 0, 0, op == 'on'
  while moved < 600 and bytes < 262144 do
    if call('EXISTS', on and key or passed) == 0 or not on and call('EXISTS', key) == 0 then return over() end
    local some, order = on and call('LRANGE', key, 0, 49) or call('LRANGE', passed, -50, -1), {}
    for i = on and 1 or #some, on and #some or 1, on and 1 or -1 do
      bytes = bytes + #some[i]
      if some[i] ~= '' then order[#order + 1] = some[i] end
    end
    if on then
      if #order > 0 then call('RPUSH', passed, unpack(order)) end
      call('LTRIM', key, #some, -1)
    else
      if #order > 0 then call('LPUSH', key, unpack(order)) end
      call('LTRIM', passed, 0, -#some - 1)
    end
    moved = moved + #some
  end
  local left = call('LLEN', on and key or passed)
  if left == 0 then return over() end
  return {'OK', left}
end

-- The records read are at the head, except those that others have taken.
local part, aligned = call('LRANGE', key, 0, tonumber(ARGV[6]) - 1), 0
for i = #part, 1, -1 do
  if part[i] == ARGV[7] then
    aligned = i
    break
  end
end
if aligned == 0 then return {'MOVED'} end
for i = #part, aligned + 1, -1 do part[i] = nil end
local places, done, start = placed(8, part, 0), {}, fmt('%.0f', math.floor(ms / 1000))
for i = 8, #ARGV, 6 do
  local at, how = places[i], 'g'
  if at then how = pushes(prefix, i, start) end
  if how == 'r' or how == 'u' then part[at] = ARGV[i + 2] ~= '' and ARGV[i + 2] end
  done[#done + 1] = how
end
local kept = {}
for i = 1, aligned do
  if part[i] and part[i] ~= '' then kept[#kept + 1] = part[i] end
end
for i = 1, #kept, 500 do call('RPUSH', passed, unpack(kept, i, math.min(i + 499, #kept))) end
call('LTRIM', key, aligned, -1)
return {'OK', aligned, table.concat(done)}
