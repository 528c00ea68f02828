-- taking takes payloads, compared byte by byte, out of a part of a queue or of one of its lines that the caller has
-- read before. They leave the list together, from its nearer end, as it may be long.
--
-- DEFINES  taking(prefix, queue, line, from, count, first, step, back): nil and what is in the way; or a table with
--          found: the payloads that are still there, in their order, or from the last with back; each has nth, its
--          number among the arguments from first on, of which it is each step-th, payload, and start in a unique queue;
--          counted: whether any job of the queue has died; take(f), forget(f): no result; finish(): no result, comes last.
--          line is '', or l and the name of the line, t and the place of a tenant. The caller has read count payloads
--          from index from on
-- NEEDS    base, records, lines, unique, deaths
-- KEYS     writes KEYS[1], the list, its companions and the counts of its lines; forget those of forget in deaths
-- COST     about 6 commands, O(count); take: 1 to 3; finish: 1 to 9, and the way to the payloads

local function taking(prefix, queue, line, from, count, first, step, back)
  local key, set, starts = KEYS[1], KEYS[1] .. ':uniqueue', KEYS[1] .. ':start_at'
  local companions = line == '' and call('EXISTS', set, starts) > 0 -- a line has no companions, whatever its name
  local wrong = queueobstacle(key, companions)
  if wrong then return nil, wrong end
  local t, n, places = {found = {}}, len(key), {} -- places: payload → which of the arguments ask for it
  for i = #ARGV - step + 1, first, -step do
    places[ARGV[i]] = places[ARGV[i]] or {}
    table.insert(places[ARGV[i]], (i - first) / step + 1)
  end
  -- Removals since the read have moved the rest toward the head.
  local at, aligned = math.max(0, from - math.min(200, count)), companions and call('LLEN', starts) == n
  local waiting = call('LRANGE', key, at, from + count - 1)
  local times = aligned and call('LRANGE', starts, at, from + count - 1) or {}
  for k = 1, #waiting do
    local i = back and #waiting + 1 - k or k
    local list = places[waiting[i]]
    if list and #list > 0 then
      t.found[#t.found + 1] = {at = at + i - 1, payload = waiting[i], nth = table.remove(list), start = match(times[i] or '', '^%d+$')}
    end
  end

  local hole, holes = '\0' .. redis.sha1hex(prefix .. queue .. from), 0
  function t.take(f)
    call('LSET', key, f.at, hole)
    if aligned then call('LSET', starts, f.at, hole) end
    if companions then call('SREM', set, f.payload) end
    holes = holes + 1
  end

  -- forget drops a job's count of deaths. A suspect, which stays, may equal the job and share its count.
  t.counted = pcall_('EXISTS', (dead.keys(prefix, queue))) == 1
  local alone = t.counted and len(prefix .. 'resqued:suspects:' .. queue) == 0
  function t.forget(f)
    if alone then dead.forget(prefix, queue, f.payload) end
  end

  function t.finish()
    if holes == 0 then return end
    local direction = at < n / 2 and holes or -holes
    call('LREM', key, direction, hole)
    if aligned then call('LREM', starts, direction, hole) end
    if line ~= '' then lines(prefix).less(queue, line, holes) end
  end

  return t
end
