-- lockstate tells who holds a class lock and whether a loner job waits for it.
--
-- KEYS[1] the lock
-- ARGV    prefix, loner marker, elsewhere (1: another Redis than the daemon's)
-- RETURNS {value of the lock or '', 1 a loner job waits, 0 none}

local wrong = notext(KEYS[1], ARGV[2])
if wrong then return wrong end
local prefix, elsewhere = ARGV[1], ARGV[3] == '1'
local ms = now()
return {standing(prefix, KEYS[1], ms, elsewhere) or '', marked(prefix, ARGV[2], ms, elsewhere) and 1 or 0}
