-- payload_functions defines the functions of payload. exchange goes without: it defines them
-- only in the calls that need them, because to define a function costs something each time.
--
-- DEFINES  stringend, closing, squeeze, envelope, lockname: see payload
-- NEEDS    base, payload
-- KEYS     none
-- COST     no command

local stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname)
