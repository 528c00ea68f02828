-- pause knows from which queues no job may be taken: pause:all and pause:queue:<q>, with any
-- value, are those of resque-pause; pause-all-workers = true is Resque's own.
--
-- DEFINES  pausing(prefix): whether that is all queues; paused(prefix, queue): whether it is one
-- NEEDS    base
-- KEYS     reads those above
-- COST     1 command each; pausing 3 where there is a key

-- pausing reports whether that is all queues.
local function pausing(prefix)
  local all, workers = prefix .. 'pause:all', prefix .. 'pause-all-workers'
  local n = query('EXISTS', all, workers)
  if n == 0 then return false end
  if query('EXISTS', all) == 1 then return true end
  local value = pcall_('GET', workers)
  return type(value) == 'string' and string.lower(match(value, '^%s*(.-)%s*$')) == 'true'
end

local function paused(prefix, queue) return query('EXISTS', prefix .. 'pause:queue:' .. queue) == 1 end
