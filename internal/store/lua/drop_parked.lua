-- drop_parked removes what is parked under an id, with its payload. The death count of a job that waits for its
-- place is removed, too.
--
-- KEYS[1]   resqued:parked
-- ARGV[1]   prefix
-- ARGV[2]   id
-- RETURNS   1; 0 nothing is parked under the id; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      at most 12 commands; O(1)

local prefix, id = ARGV[1], ARGV[2]
local wrong = parked.obstacle(prefix)
if wrong then return redis.error_reply('RESQUEDTYPE ' .. wrong .. '; move it away') end
local meta, payload = call('HGET', KEYS[1], id), parked.payload(prefix, id)
local kind, n, i = match(meta or '', '^1 (%a) %d+ [%d-]+ %d+ (%d+) %d+ %d+\n()')
parked.drop(prefix, id)
if payload and kind and kind ~= 'l' then dead.forget(prefix, sub(meta, i, i + tonumber(n) - 1), payload) end
return meta and 1 or 0
