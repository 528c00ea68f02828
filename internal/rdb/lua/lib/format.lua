-- format recognizes data of other versions. Worker processes and masters note in their entries the
-- format in which they write. Only programs that read it may act on their jobs.
--
-- DEFINES  unread(format, oldest, newest): whether a format, the reply of an HGET, is none of
--          those that the caller reads
-- NEEDS    none
-- KEYS     none
-- COST     no command

local function unread(format, oldest, newest)
  if type(format) == 'table' then return false end -- not a hash: no format given
  local n = tonumber(format or '1') -- written before there were numbers
  return not n or n < tonumber(oldest) or n > tonumber(newest)
end
