-- longturn looks after tenants whose runs have waited for long: those have their turn whose
-- time has come, though nobody has told so, because somebody has died.
--
-- KEYS[1] resqued:longjob:tenants
-- ARGV    prefix, how long a tenant was not looked at (ms), how many at most
-- RETURNS how many were looked at

local prefix, ms = ARGV[1], (now())
local tenants = call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt('%.0f', ms - tonumber(ARGV[2])), 'LIMIT', 0, ARGV[3])
for _, tenant in ipairs(tenants) do
  need(KEYS[1], 'ZADD')
  call('ZADD', KEYS[1], fmt('%.0f', ms), tenant) -- also where something is in the way
  needtenant(prefix, tenant)
  holders(prefix, tenant, 0)
  turn(prefix, tenant, ms)
end
return #tenants
