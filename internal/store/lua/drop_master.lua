-- drop_master removes the entry of a master.
--
-- KEYS[1]   resqued:master:<id>
-- ARGV[1]   the set of masters
-- ARGV[2]   id
-- RETURNS   1
-- COST      2 commands; O(1)

redis.call('DEL', KEYS[1])
redis.call('SREM', ARGV[1], ARGV[2])
return 1
