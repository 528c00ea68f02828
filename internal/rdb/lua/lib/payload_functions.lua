-- payload_functions defines the functions of payload. exchange only defines them in calls that need them,
-- because each definition costs time.
--
-- DEFINES  stringend, closing, squeeze, envelope, lockname: see payload
-- NEEDS    base, payload
-- KEYS     none
-- COST     no command

local stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname)
