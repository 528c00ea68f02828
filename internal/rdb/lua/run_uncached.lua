-- run_uncached runs a script without caching it, because Redis never evicts cached EVAL scripts; all
-- scripts take 4 MB compiled. On a server without loadstring the script does not run.
--
-- KEYS[1…]  those of the script
-- ARGV[1]   the script
-- ARGV[2…]  its arguments
-- RETURNS   what the script returns
-- COST      no command but those of the script

local script = table.remove(ARGV, 1)
local known, load = pcall(function() return loadstring end)
if known and load then return assert(load(script))() end
