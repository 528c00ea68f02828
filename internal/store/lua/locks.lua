-- locks returns what is known of some locks. It is one script, because a job that ends
-- between two looks would leave its lock behind as an orphan.
--
-- KEYS[1]   resqued:procs
-- ARGV[1]   prefix
-- ARGV[2]   how many bytes of a payload to return
-- ARGV[3…]  per lock: kind (see lock_info), key
-- RETURNS   {time (ms), for each lock its fields (see lock_info), {} if it is not there}
-- COST      1 command, and 3 to 6 per lock; O(n). A loner marker costs what waits in classlock
--           does.

local prefix, room = ARGV[1], tonumber(ARGV[2])
local ms = now()
local reply = {ms}
for i = 3, #ARGV, 2 do
  reply[#reply + 1] = fields(look(prefix, ARGV[i], ARGV[i + 1], ms, room))
end
return reply
