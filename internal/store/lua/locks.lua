-- locks describes some locks. It is one script, because a job that ends between two reads would make its lock look
-- orphaned.
--
-- KEYS[1]   resqued:procs
-- ARGV[1]   prefix
-- ARGV[2]   how many bytes of a payload to return
-- ARGV[3…]  per lock: kind (see lock_info), key
-- RETURNS   {time (ms), per lock its fields (see lock_info), {} if it does not exist}
-- COST      1 command, and 3 to 6 per lock; O(n). A loner marker costs as much as waits in
--           classlock.

local prefix, room = ARGV[1], tonumber(ARGV[2])
local ms = now()
local reply = {ms}
for i = 3, #ARGV, 2 do
  reply[#reply + 1] = fields(look(prefix, ARGV[i], ARGV[i + 1], ms, room))
end
return reply
