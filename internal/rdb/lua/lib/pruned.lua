-- pruned keeps an eye on queues whose names were removed. Ruby's Resque adds the name of a queue and pushes
-- in two steps: a name that is removed between them stays away, and hardly any worker would look for the job.
-- So the names that were removed last are looked at every few seconds, and the others now and then; a
-- queue that holds jobs gets its name back. resqued:pruned has them, and when they were removed (ms).
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
        -- Of very many queues those are looked at first that have held jobs lately.
        pcall_('ZADD', prefix .. 'resqued:recent', fmt('%.0f', (now())), names[i])
        pcall_('PEXPIRE', prefix .. 'resqued:recent', 3600000)
        n = n + 1
      end
    end
  end
  return n
end

-- recent looks at the names that were removed last. Every master calls it; one of them looks.
function pruned.recent(prefix, ms)
  local set, since = prefix .. 'resqued:pruned', fmt('%.0f', ms - pruned.soon)
  local n = pcall_('ZCOUNT', set, since, '+inf')
  if type(n) ~= 'number' or n == 0 then return end
  local mine = pcall_('SET', prefix .. 'resqued:pruned:look', '1', 'PX', pruned.turn, 'NX')
  if not mine or refused(mine) then return end
  local names = pcall_('ZREVRANGEBYSCORE', set, '+inf', since, 'LIMIT', 0, 5000)
  if not refused(names) then pruned.back(prefix, names) end
end
