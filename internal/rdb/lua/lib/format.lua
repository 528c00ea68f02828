-- format recognises what a program of another version has written. Worker processes and masters
-- say in their entries in which format they write; what they have in hand, only those act upon
-- who read it.
--
-- DEFINES  unread(format, oldest, newest): whether a format, the reply of an HGET, is none of
--          those that the caller reads
-- NEEDS    none
-- KEYS     none
-- COST     no command

local function unread(format, oldest, newest)
  if type(format) == 'table' then return false end -- no hash: nothing was said
  local n = tonumber(format or '1') -- who says none has written before there were numbers
  return not n or n < tonumber(oldest) or n > tonumber(newest)
end
