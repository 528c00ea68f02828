-- putmaster writes or renews the entry of a master.
--
-- KEYS[1] resqued:master:<id>
-- ARGV    the set of masters, id, how long the entry lives (ms), then field/value pairs

-- A full server accepts this write, and after it the others.
redis.call('PERSIST', KEYS[1])
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SADD', ARGV[1], ARGV[2])
return 1
