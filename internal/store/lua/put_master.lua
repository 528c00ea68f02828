-- put_master writes or renews the entry of a master.
--
-- KEYS[1]   resqued:master:<id>
-- ARGV[1]   the set of masters
-- ARGV[2]   id
-- ARGV[3]   how long the entry lives (ms)
-- ARGV[4…]  per field: name, value
-- RETURNS   1
-- COST      3 commands, and 1 per field; O(n)

-- A full server accepts this write, and after it the others.
redis.call('PERSIST', KEYS[1])
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SADD', ARGV[1], ARGV[2])
return 1
