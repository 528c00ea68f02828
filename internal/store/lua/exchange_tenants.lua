-- exchange_tenants determines the tenant of a fair queue's job, and the cost of a turn. A part of exchange; see
-- exchange_fast.
--
-- DEFINES  fair.tenant(queue, payload, index): a tenant, or nil; fair.rule(queue): index, function of the cost of a turn
-- NEEDS    all parts before it
-- COST     0 commands

local fair = {reach = 512, bytes = 262144} -- how much of a queue's head one call reads

-- tenant returns a payload's tenant, nil if Go must name it. index is that of the tenant's argument, nil for
-- any other rule. Go reads payloads with escapes, and those that neither Ruby nor Go would write so.
function fair.tenant(queue, payload, index)
  -- Character classes are only searched where the tenant is; a megabyte would take 20 ms.
  local head = #payload > 2048 and sub(payload, 1, 2048) or payload
  if index and not find(payload, '\\', 1, true) and not find(head, '[\128-\255%c]') then
    local at = match(head, '^{"class":"[^"]*","args":%[()')
    if at and find(payload, '"args"', at, true) then at = nil end
    for i = 0, at and index or -1 do
      local text, behind = match(head, '^"([^"]*)"()[,%]]', at)
      if not text then text, behind = match(head, '^(%-?%d+)()[,%]]', at) end
      if not text or i < index and byte(head, behind) ~= 44 then break end
      if i == index then return #text <= 512 and text or nil end
      at = behind + 1
    end
  end
  return line.named[queue .. '\0' .. redis.sha1hex(payload)]
end

-- rule returns the index for tenant, and a function for what one job of a place adds to its turn.
function fair.rule(queue)
  local text = line.fair[queue] or '- 1'
  local index, rest, at = match(text, '^(%S+) (%d+)()')
  local weights = {}
  while true do
    local weight, n, from = match(text, '^ (%d+) (%d+) ()', at)
    if not weight then break end
    at = from + tonumber(n)
    weights['=' .. sub(text, from, at - 1)] = tonumber(weight)
  end
  return tonumber(index), function(place)
    return place == '!' and 0 or 1 / (weights[place] or tonumber(rest))
  end
end
