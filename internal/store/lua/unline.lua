-- unline returns jobs in a queue's lines to its head, for workers of other programs. It keeps the order within
-- each line, and puts jobs that wait for a lock before jobs that wait for their tenant's turn. It replaces a
-- reference, which only resqued understands, by its payload.
--
-- KEYS[1]   queue:<q>
-- ARGV[1]   prefix
-- ARGV[2]   queue
-- ARGV[3]   how many jobs to return at most; fewer if they exceed 4 MB
-- RETURNS   {how many jobs were returned, whether lines are left (1|0)}; error RESQUEDTYPE or NOPERM:
--           nothing was done
-- COST      about 8 commands, 2 per job, 8 more per reference, and up to 9 per line, of 200 at most

local key, prefix, queue, left = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
if not len(key) then return inway(notlist(key)) end
local l, moved, bytes = lines(prefix), 0, 0

-- whole returns a reference's payload, or the payload itself.
local function whole(payload)
  local id = match(payload, '^{"class":"Resqued::LargePayload","args":%["([^"\\]+)",')
  local kept = id and not parked.obstacle(prefix) and parked.payload(prefix, id)
  if kept then parked.drop(prefix, id) end
  return kept or payload
end

call('SADD', prefix .. 'queues', queue) -- the first write, which a full server refuses with nothing done
forget_seen(prefix, queue)
-- The oldest line is returned last, so that its jobs are at the head.
for _, kind in ipairs({'t', 'l'}) do
  local names = pcall_('ZREVRANGE', kind == 't' and l.turns(queue) or prefix .. 'resqued:lines:' .. queue, '0', '99')
  for _, name in ipairs(names.err and {} or names) do
    local list = kind == 't' and l.tenant(queue, name) or l.list(queue, name)
    local n = 0
    while n < left and bytes < 4194304 do
      local payload = pcall_('RPOP', list)
      if type(payload) ~= 'string' then break end
      payload = whole(payload)
      call('LPUSH', key, payload)
      n, bytes = n + 1, bytes + #payload
    end
    moved, left = moved + n, left - n
    l.less(queue, kind .. name, n)
    if left == 0 or bytes >= 4194304 then return {moved, 1} end
  end
  if #names == 100 then return {moved, 1} end -- the other lines of this kind come first
end
return {moved, 0}
