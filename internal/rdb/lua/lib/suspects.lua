-- suspects quarantines jobs that may have killed their process: a job that may be to blame for a death
-- waits in resqued:suspects:<queue> instead of its queue, until a process runs it alone. The elements
-- are "<start> <payload>", as in a record; resqued:suspects is the set of queues that have any. They
-- count as taken from their queue, and return to its head when that process dies as well.
--
-- DEFINES  apartkey(prefix, queue): the list; set_apart(prefix, queue, payload, start): no
--          result; apart(prefix, queue): how many wait; suspect(element): payload, start
-- NEEDS    base, records
-- KEYS     reads and writes those above
-- COST     set_apart: 2 commands; apart: 1 or 2; O(1)

local function apartkey(prefix, queue) return prefix .. 'resqued:suspects:' .. queue end

local function set_apart(prefix, queue, payload, start)
  call('RPUSH', apartkey(prefix, queue), start .. ' ' .. payload)
  call('SADD', prefix .. 'resqued:suspects', queue)
end

-- apart returns how many suspects of a queue wait; it removes the queue from the set after the last.
local function apart(prefix, queue)
  local n = len(apartkey(prefix, queue)) or 0
  if n == 0 then pcall_('SREM', prefix .. 'resqued:suspects', queue) end
  return n
end

local function suspect(element)
  local start, i = match(element, '^([%d-]+) ()')
  if not start then return element, '-' end
  return sub(element, i), start
end
