-- request_order leaves an order for a master, which takes it with the next renewal of its entry.
--
-- KEYS[1]   resqued:master:<id>
-- ARGV[1]   resqued:orders:<id>
-- ARGV[2]   the order's id
-- ARGV[3]   verb and process, "<verb> <process>"
-- RETURNS   'asked'; 'gone' the master does not exist, or not any more; 'old' it does not take orders;
--           error RESQUEDTYPE: a key is not a hash, nothing was done
-- COST      6 commands; O(1)

local orders = ARGV[1]
local takes = query('HMGET', KEYS[1], 'state', 'orders')
if takes.err then return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is not a hash; move it away') end
if not takes[1] then return 'gone' end
if not takes[2] then return 'old' end
if type(query('HLEN', orders)) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. orders .. ' is not a hash; move it away')
end
call('HSET', orders, ARGV[2], fmt('%.0f ', (now())) .. ARGV[3])
call('PEXPIRE', orders, 60000)
return 'asked'
