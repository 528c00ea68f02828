-- close_limit lets no job of a limit's key begin until a time. A later end that is set already stays.
--
-- KEYS[1]   resqued:closed
-- ARGV[1]   the limit's name, a colon and the key
-- ARGV[2]   until (ms)
-- RETURNS   1 or, if it was closed for longer, 0
-- COST      1 or 2 commands; O(1)

local was = pcall_('HGET', KEYS[1], ARGV[1])
if refused(was) then call('DEL', KEYS[1]) end -- only resqued uses it
if type(was) == 'string' and (tonumber(was) or 0) >= tonumber(ARGV[2]) then return 0 end
call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
