-- drop_parked removes what is parked under some ids, with the payloads. The death count of a job that waits for its
-- place is removed, too.
--
-- KEYS[1]   resqued:parked
-- ARGV[1]   prefix
-- ARGV[2]   1 only payloads kept for failure records; 0 whatever is parked
-- ARGV[3…]  ids
-- RETURNS   how many were removed; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      3 commands, and at most 10 per id; O(n)

local prefix, n = ARGV[1], 0
local wrong = inway(parked.obstacle(prefix))
if wrong then return wrong end
call('PERSIST', KEYS[1]) -- the first write
for i = 3, #ARGV do
  local id, meta = ARGV[i], call('HGET', KEYS[1], ARGV[i])
  local kind, size, at = match(meta or '', '^1 (%a) %d+ [%d-]+ %d+ (%d+) %d+ %d+\n()')
  if meta and (kind == 'l' or ARGV[2] == '0') then
    local payload = parked.payload(prefix, id)
    parked.drop(prefix, id)
    if payload and kind and kind ~= 'l' then dead.forget(prefix, sub(meta, at, at + tonumber(size) - 1), payload) end
    n = n + 1
  end
end
return n
