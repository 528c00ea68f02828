-- payload_functions defines the functions of payload.lua at once. exchange goes without:
-- it defines them only for the calls that need them.

local stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname)
