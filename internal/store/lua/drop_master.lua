-- dropmaster removes the entry of a master.
--
-- KEYS[1] resqued:master:<id>
-- ARGV    the set of masters, id

redis.call('DEL', KEYS[1])
redis.call('SREM', ARGV[1], ARGV[2])
return 1
