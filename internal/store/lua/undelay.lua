-- undelay removes delayed jobs, or pushes them now: only jobs that still wait there, byte by byte.
--
-- KEYS[1]   resqued:delayed
-- ARGV[1]   prefix
-- ARGV[2]   what to do: run or rm
-- ARGV[3…]  per job: its key, the item, whether its queue is unique (1|0)
-- RETURNS   a text of one letter per job, of the first ones only if the rest needs another call: r
--           (done), u (done; not pushed, as an equal job waits), g (gone), x (a key has the wrong
--           type, or it is not a job; nothing was done); error NOPERM: nothing was done
-- COST      1 command, and 1 to 8 per job; O(n), and for a job in a list its length, at most about
--           250,000 elements per call. With a unique queue those of putback.

local prefix, run = ARGV[1], ARGV[2] == 'run'
local own, schedule = prefix .. 'resqued:delayed', prefix .. 'delayed_queue_schedule'
local done, ms = {}, (now())
-- looks is how many elements of lists this call may search, near how far from the head an item is cheap to
-- find.
local looks, near = 250000, 1000

-- isnear reports whether an item is near a list's head.
local function isnear(key, item)
  local at = pcall_('LPOS', key, item, 'MAXLEN', near)
  if not refused(at) then return at ~= false end
  -- A server before 6.0.6, where an element costs ten times as much.
  looks = looks - 10 * math.min(near, len(key) or 0)
  for _, other in ipairs(pcall_('LRANGE', key, 0, near - 1)) do if other == item then return true end end
  return false
end

for i = 3, #ARGV, 3 do
  local key, item, unique = ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1'
  if key ~= own then
    local at = pcall_('LPOS', key, item, 'MAXLEN', near)
    looks = looks - (type(at) == 'number' and near or len(key) or 0)
    if looks < 0 and #done > 0 then break end
  end
  local queue, payload
  if key == own then queue, payload = memberof(item) else queue, payload = jobof(item) end
  local target = prefix .. 'queue:' .. (queue or '')
  local how = 'r'
  if run and (not queue or queueobstacle(target, unique)) then
    how = 'x'
  else
    local gone = key == own and pcall_('ZREM', own, item) or key ~= own and pcall_('LREM', key, 1, item)
    if gone ~= 1 then
      how = checked(gone) == 0 and 'g' or 'x'
    else
      if key ~= own then
        local at = sub(key, #prefix + #'delayed:' + 1)
        -- This entry lets Ruby find an equal job of the same second; it stays if that job is near the head.
        if not isnear(key, item) then pcall_('SREM', prefix .. 'timestamps:' .. item, 'delayed:' .. at) end
        if call('LLEN', key) == 0 then pcall_('ZREM', schedule, at) end
      end
      if not run then -- it is removed
      elseif not unique then
        append(prefix, queue, payload, ms)
      elseif not putback(prefix, queue, payload, fmt('%.0f', math.floor(ms / 1000)), false) then
        how = 'u'
      end
    end
  end
  done[#done + 1] = how
end
return table.concat(done)
