-- pause tells from which queues nobody may take a job: pause:all and pause:queue:<q>,
-- with any value, are those of resque-pause; pause-all-workers = true is Resque's own.

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
