-- pause knows the queues from which no job may be taken. resque-pause uses pause:all and pause:queue:<q>,
-- with any value; Resque itself uses pause-all-workers = true.
--
-- DEFINES  pausing(prefix): whether that is all queues; paused(prefix, queue): whether it is one
-- NEEDS    base
-- KEYS     reads those above
-- COST     1 command each; pausing 3 where there is a key

local function pausing(prefix)
  local all, workers = prefix .. 'pause:all', prefix .. 'pause-all-workers'
  local n = query('EXISTS', all, workers)
  if n == 0 then return false end
  if query('EXISTS', all) == 1 then return true end
  local value = pcall_('GET', workers)
  return type(value) == 'string' and string.lower(match(value, '^%s*(.-)%s*$')) == 'true'
end

local function paused(prefix, queue) return query('EXISTS', prefix .. 'pause:queue:' .. queue) == 1 end
