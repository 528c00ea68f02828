-- turn gives tenants their turn whose runs have waited for long: no process has given it
-- to them, because one has died.
--
-- KEYS[1]   resqued:longjob:tenants
-- ARGV[1]   prefix
-- ARGV[2]   for how long a tenant was not looked at (ms)
-- ARGV[3]   n, the most tenants to look at
-- RETURNS   how many were looked at; error RESQUEDTYPE or NOPERM: the tenants behind the one in
--           the way were not looked at
-- COST      2 commands, and per tenant about 10, those of turn in longjob, and 2 for each of up
--           to 1,000 runs that have a slice; O(n)

local prefix, ms = ARGV[1], (now())
local tenants = call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt('%.0f', ms - tonumber(ARGV[2])), 'LIMIT', 0, ARGV[3])
for _, tenant in ipairs(tenants) do
  call('ZADD', KEYS[1], fmt('%.0f', ms), tenant) -- also where something is in the way
  needtenant(prefix, tenant)
  holders(prefix, tenant, 0)
  turn(prefix, tenant, ms)
end
return #tenants
