-- pruned watches queues whose names were removed. Ruby's Resque adds a queue's name and pushes in two steps.
-- If the name is removed in between, hardly any worker finds the job. So recently removed names are checked
-- every few seconds, others now and then, and a queue with jobs gets its name back. resqued:pruned holds
-- the names and when they were removed (ms).
--
-- DEFINES  pruned.note(prefix, queue, ms), pruned.recent(prefix, ms): no result; pruned.back(prefix, names):
--          how many got their name back
-- NEEDS    base
-- KEYS     reads and writes resqued:pruned, resqued:pruned:look, resqued:recent and queues, reads queue:<q>
-- COST     note: 2 commands, O(log n). back: 1 per 128 names, and about 6 for each with jobs near it. recent: 1, and each
--          few seconds 2 and those of back for 5,000 names at most

local pruned = {soon = 300000, turn = 4000, most = 100000} -- ms, ms, names

function pruned.note(prefix, queue, ms)
  local set = prefix .. 'resqued:pruned'
  call('ZADD', set, fmt('%.0f', ms), queue)
  call('ZREMRANGEBYRANK', set, 0, -pruned.most - 1)
end

function pruned.back(prefix, names)
  local n = 0
  for from = 1, #names, 128 do
    local to, keys = math.min(#names, from + 127), {}
    for i = from, to do keys[#keys + 1] = prefix .. 'queue:' .. names[i] end
    local there = pcall_('EXISTS', unpack(keys))
    for i = from, there == 0 and 0 or to do
      local size = pcall_('LLEN', prefix .. 'queue:' .. names[i])
      if type(size) == 'number' and size > 0 and not refused(pcall_('SADD', prefix .. 'queues', names[i])) then
        pcall_('ZREM', prefix .. 'resqued:pruned', names[i])
        -- With very many queues, those that recently held jobs are polled first.
        pcall_('ZADD', prefix .. 'resqued:recent', fmt('%.0f', (now())), names[i])
        pcall_('PEXPIRE', prefix .. 'resqued:recent', 3600000)
        n = n + 1
      end
    end
  end
  return n
end

-- recent checks recently removed names. Every master calls it; one at a time does the work.
function pruned.recent(prefix, ms)
  local set, since = prefix .. 'resqued:pruned', fmt('%.0f', ms - pruned.soon)
  local n = pcall_('ZCOUNT', set, since, '+inf')
  if type(n) ~= 'number' or n == 0 then return end
  local mine = pcall_('SET', prefix .. 'resqued:pruned:look', '1', 'PX', pruned.turn, 'NX')
  if not mine or refused(mine) then return end
  local names = pcall_('ZREVRANGEBYSCORE', set, '+inf', since, 'LIMIT', 0, 5000)
  if not refused(names) then pruned.back(prefix, names) end
end
