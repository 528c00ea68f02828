-- locks tells who holds some locks. In one script, because a job that ends between
-- two looks would leave its lock behind as an orphan.
--
-- KEYS[1] resqued:procs
-- ARGV    prefix, bytes of a payload to return, then per lock: kind, key
-- RETURNS {time (ms), for each lock its fields (see holder), none if it is not there}

local prefix, room = ARGV[1], tonumber(ARGV[2])
local ms = now()
local reply = {ms}
for i = 3, #ARGV, 2 do
  reply[#reply + 1] = fields(look(prefix, ARGV[i], ARGV[i + 1], ms, room))
end
return reply
