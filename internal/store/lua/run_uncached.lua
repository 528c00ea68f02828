-- rehearse runs a script that the server shall not keep. Whatever it was sent it keeps for ever, the
-- text and what Lua has made of it: of all scripts of this package 4 MB.
-- ARGV the script, then its arguments
local script = table.remove(ARGV, 1)
local known, load = pcall(function() return loadstring end)
if known and load then return assert(load(script))() end
