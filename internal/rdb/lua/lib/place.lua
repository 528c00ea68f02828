-- place knows where the processes of one host and boot are listed.
--
-- DEFINES  placeof(prefix, proc): the key of that set, nil where the name of the process has no place
-- NEEDS    base
-- KEYS     none
-- COST     no command

local function placeof(prefix, proc)
  local place = match(proc, '^(.*):[^:]*:[^:]*$')
  return place and prefix .. 'resqued:place:' .. place
end
