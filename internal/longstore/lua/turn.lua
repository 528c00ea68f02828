-- turn gives turns to tenants whose runs have waited for long. A process that died may not have given them.
--
-- KEYS[1]   resqued:longjob:tenants
-- ARGV[1]   prefix
-- ARGV[2]   for how long a tenant was not looked at (ms)
-- ARGV[3]   n, the most tenants to look at
-- RETURNS   how many were checked; error RESQUEDTYPE or NOPERM: the tenants after the bad one were
--           not checked
-- COST      2 commands, and per tenant about 10, those of turn in longjob, and 2 for each of up
--           to 1,000 runs that have a slice; O(n)

local prefix, ms = ARGV[1], (now())
local tenants = call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt('%.0f', ms - tonumber(ARGV[2])), 'LIMIT', 0, ARGV[3])
for _, tenant in ipairs(tenants) do
  call('ZADD', KEYS[1], fmt('%.0f', ms), tenant) -- also if the checks below fail
  needtenant(prefix, tenant)
  holders(prefix, tenant, 0)
  turn(prefix, tenant, ms)
end
return #tenants
