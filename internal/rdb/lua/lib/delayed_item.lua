-- delayed_item reads delayed jobs; see delay.
--
-- DEFINES  jobof(item): queue and payload of an item, or nil for what is not a job;
--          memberof(member): the same for a member of resqued:delayed
-- NEEDS    base, payload, payload_functions
-- KEYS     none
-- COST     no command; O(bytes)

-- textof returns the text of a JSON string between two quotes.
local function textof(s, from, to)
  local raw = sub(s, from + 1, to - 1)
  if not find(raw, '\\', 1, true) then return raw end
  local ok, list = pcall(cjson.decode, '[' .. sub(s, from, to) .. ']')
  return ok and list[1] or nil
end

-- taken reports whether a queue's key belongs to another, unique queue. Jobs for it are not valid. See
-- wire.CheckQueue.
local function taken(queue) return find(queue, ':start_at$') or find(queue, ':uniqueue$') end

-- jobof returns an item's queue and its payload, the item with only the queue removed; nil if it is not a job.
local function jobof(s)
  local i = match(s, '^{"class":"[^"\\]+","args":()%[')
  local e = i and closing(s, i)
  local name = e and match(s, '^,"queue":"([^"\\]+)"}$', e + 1)
  if name and not taken(name) then return name, sub(s, 1, e) .. '}' end
  -- Other programs write the keys in another order.
  local pos, last, queue, from, to = match(s, '^%s*{%s*()'), nil, nil, nil, nil
  while pos do
    if byte(s, pos) ~= 34 then return nil end
    local keyend = stringend(s, pos, 0)
    local at = keyend and match(s, '^%s*:%s*()', keyend + 1)
    if not at then return nil end
    local c = byte(s, at)
    if c == 34 then
      e = stringend(s, at, 0)
    elseif c == 91 or c == 123 then
      e = closing(s, at)
    else
      e = find(s, '[,}%s]', at)
      e = e and e - 1
    end
    local sep, following = match(s, '^%s*([,}])%s*()', (e or #s) + 1)
    if not sep then return nil end
    if c == 34 and textof(s, pos, keyend) == 'queue' then
      queue, from, to = textof(s, at, e), pos, following - 1
      if sep == '}' then from, to = last and last + 1 or pos, e end
    end
    if sep == '}' then
      if following <= #s or not queue or queue == '' or taken(queue) then return nil end
      return queue, sub(s, 1, from - 1) .. sub(s, to + 1)
    end
    last, pos = e, following
  end
end

-- memberof returns queue and payload of a member of resqued:delayed; nil if it is not a job.
local function memberof(s)
  local n, i = match(s, '^[^#]*#[^ ]* (%d+)u? ()')
  n = tonumber(n)
  if not n or i + n - 1 > #s or taken(sub(s, i, i + n - 1)) then return nil end
  return sub(s, i, i + n - 1), sub(s, i + n)
end
