-- put_master writes or renews a master's entry, leaves its answers to orders, and takes its pending orders. A
-- taken order is carried out at most once: if the reply is lost, its sender gets no answer.
--
-- KEYS[1]   resqued:master:<id>
-- ARGV[1]   the set of masters
-- ARGV[2]   id
-- ARGV[3]   how long the entry lives (ms)
-- ARGV[4]   resqued:orders:<id>
-- ARGV[5]   resqued:ordered:<id>
-- ARGV[6]   n, how many answers there are
-- ARGV[7…]  per answer: the order, the answer; then per field: name, value
-- RETURNS   the pending orders that are not too old: {id, "<time, ms> <verb> <process>", …}
-- COST      5 commands, 2 per answer, and 2 if orders wait; O(n)

-- A full server accepts this write, and then the others.
redis.call('PERSIST', KEYS[1])
local first = 7 + 2 * tonumber(ARGV[6])
redis.call('HSET', KEYS[1], unpack(ARGV, first))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SADD', ARGV[1], ARGV[2])
for i = 7, first - 1, 2 do
  redis.pcall('HSET', ARGV[5], ARGV[i], ARGV[i + 1])
  redis.pcall('PEXPIRE', ARGV[5], 600000)
end
-- The master is shown even without the right to orders.
local orders = redis.pcall('HGETALL', ARGV[4])
local taken = orders.err or #orders == 0 or redis.pcall('DEL', ARGV[4])
if taken ~= 1 then return {} end
local t = redis.call('TIME')
local ms, fresh = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000), {}
for i = 1, #orders, 2 do
  local at = tonumber(string.match(orders[i + 1], '^(%d+) ') or '')
  if at and at > ms - 60000 then
    fresh[#fresh + 1] = orders[i]
    fresh[#fresh + 1] = orders[i + 1]
  end
end
return fresh
