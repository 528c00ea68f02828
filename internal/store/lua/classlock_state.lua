-- classlock_state returns the holder of a class lock, and whether a loner job waits for it.
--
-- KEYS[1]   the lock
-- ARGV[1]   prefix
-- ARGV[2]   loner marker
-- ARGV[3]   elsewhere: 1 in another Redis than the daemon's, else 0
-- RETURNS   {value of the lock or '', 1 a loner job waits, else 0};
--           error RESQUEDTYPE: a key is not a string
-- COST      at most 6 commands; O(1). With a marker those of waits in classlock in addition.

local wrong = notext(KEYS[1], ARGV[2])
if wrong then return wrong end
local prefix, elsewhere = ARGV[1], ARGV[3] == '1'
local ms = now()
return {standing(prefix, KEYS[1], ms, elsewhere) or '', marked(prefix, ARGV[2], ms, elsewhere) and 1 or 0}
