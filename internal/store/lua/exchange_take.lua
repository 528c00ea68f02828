-- exchange_take takes jobs on the fast path: from the heads of queues in which nothing is locked, paused,
-- lined, capped, unique or blamed. All jobs of a look at a queue share its commands. At anything else it leaves
-- the rest of the call to exchange_slow. A part of exchange; see exchange_fast.
--
-- It has no functions: 17 of them cost a call for one job 35 % of the server's instructions, because Lua
-- searches each variable that a function uses (TestServerInstructions).
--
-- DEFINES  nothing
-- NEEDS    all parts before it
-- COST     1 command per 16 queues; per queue with jobs 2 or 3, and 1 more per 64 jobs; 1 for the locks of up to 64 jobs,
--          and 1 per job if one of them is held; 1 for all fences

while true do
  while going and nextqueue <= nread and w <= nwant do
    local queue, locked = names[nextqueue], modes[nextqueue] == '0l' or modes[nextqueue] == '0lq'
    if not locked and modes[nextqueue] ~= '0' then
      going = false
      break
    end
    -- Payload sizes are unknown until read, so it reads a few at a time, in case the reply has no room for them.
    local key, n, begun, chunk, popped = prefix .. 'queue:' .. queue, 0, bytes, 4, nil
    -- head begins the records of this queue's jobs whose worker's rest has length headof; back follows the
    -- numbers.
    local head, headof, back = nil, nil, nil
    local deaths = obstacles.deadly and prefix .. 'resqued:deaths:' .. queue
    if deaths and pcall_('EXISTS', deaths) == 0 then deaths = false end
    while w <= nwant do
      local room, taken = nwant - w + 1, n
      if room > chunk then room = chunk end
      -- A key of another type has no payloads. LPOP has already removed a single payload from the queue.
      local payloads
      if n > 0 or room > 1 then
        payloads = query('LRANGE', key, n == 0 and '0' or fmt('%d', n), fmt('%d', n + room - 1))
      else
        popped = query('LPOP', key)
        payloads = type(popped) == 'table' and popped or {popped or nil}
      end
      if payloads.err then popped, payloads, going = nil, {}, false end
      if deaths and #payloads > 0 then
        -- A job with deaths, and all behind it, are for exchange_slow.
        local died = {}
        for i = 1, #payloads do died[i] = redis.sha1hex(payloads[i]) end
        died = pcall_('HMGET', deaths, unpack(died))
        for i = 1, #payloads do
          if not going then
            payloads[i] = nil
          elseif died[i] then
            going, payloads[i] = false, nil
          end
        end
      end
      local size, tight = 0, false
      for i = 1, #payloads do size = size + #payloads[i] end
      if locked and size > 0 and size < 400 * #payloads then tight = not spaced(table.concat(payloads)) end
      -- One command takes all locks of these, if they are free and distinct. It sets no expiry, which the next
      -- beat does; a lock without one is in no job's way once its process is gone (see held in records).
      local set, together = nil, false
      if locked then
        together = #payloads > 1
        local at, met = wantat, together and {}
        set = together and {unpack(fields, 1, 2 * #payloads)} or {'', ''}
        for i = 1, #payloads do
          local payload = payloads[i]
          local t, m, rest = byte(wants, at, at + 2)
          local lock = style ~= 'payload' and quickname(jobs, payload, tight)
          if not lock then
            if not lockname then stringend, closing, squeeze, envelope, lockname = parts(find, byte, sub, match, quickname) end
            local ok, name = pcall(lockname, payload, style)
            lock = jobs .. (ok and name or redis.sha1hex(payload))
          end
          set[2 * i - 1], set[2 * i] = lock, me .. sub(wants, at + 3, at + 2 + t)
          if met then
            if met[lock] then together = false end
            met[lock], at = true, at + 3 + t + m * 256 + rest
          end
        end
        -- Does a suspect want one of them? See requests in exchange_locks.
        local asked = obstacles.apart and modes[nextqueue] == '0lq' and {}
        for i = 1, asked and #payloads or 0 do asked[i] = prefix .. 'resqued:request:' .. sub(set[2 * i - 1], #jobs + 1) end
        if asked and #asked > 0 and pcall_('EXISTS', unpack(asked)) ~= 0 then going, payloads, together = false, {}, false end
        if together and not fence then fence = setaside(fencekey, us, nwant) end
        together = together and fence and call('MSETNX', unpack(set)) == 1
      end
      for i = 1, #payloads do
        local payload, lock, high, low = payloads[i], '', ' 0 0', ''
        local t, m, rest = byte(wants, wantat, wantat + 2)
        local token = sub(wants, wantat + 3, wantat + 2 + t)
        m = m * 256 + rest
        if locked then
          lock = set[2 * i - 1]
          if not together and not call('SET', lock, set[2 * i], 'NX', 'EX', ttl) then
            going = false
            break
          end
          if not fence then fence = setaside(fencekey, us, nwant) end
          if not fence then
            call('DEL', lock)
            going = false
            break
          end
          fence = fence + 1
          local two = fence % 100
          if two == 0 or not hundreds then hundreds = fmt(' 0 %d', (fence - two) / 100) end
          high, low = hundreds, sub(pairsof, 2 * two + 1, 2 * two + 2)
        end
        local l = #lock
        if l ~= length then
          length, digits = l, l > 9 and l < 100 and sub(pairsof, 2 * l + 1, 2 * l + 2) or fmt('%d', l)
        end
        if not back then back = ' 0 0 ' .. clock .. ' -\n' .. queue .. lead end
        if m ~= headof then head, headof = fmt('3 %d %d ', #queue, named + m), m end
        -- A record is "3 <lengths and numbers>\n", then queue, worker, lock key, cap owner and payload, without
        -- separators, which could occur in them. The numbers are the lengths of the first four, fence, deaths,
        -- blame, the time (ms), and the job's entry in a unique queue's start_at list, else "-". See give in
        -- exchange_locks for all other records.
        local own = m > 0 and sub(wants, wantat + 3 + t, wantat + 2 + t + m) or ''
        local record = head .. digits .. high .. low .. back .. own .. tail .. lock .. payload
        fields[2 * w - 1], fields[2 * w], reply[w + 2] = token, record, record
        wantat = wantat + 3 + t + m
        bytes, w, n = bytes + #payload, w + 1, n + 1
        if bytes >= maxbytes then break end
      end
      for i = n - taken + 1, together and #payloads or 0 do call('DEL', set[2 * i - 1]) end -- the reply is full
      if not going or n - taken < room or bytes >= maxbytes then break end
      if 2 * w - written > 1000 then -- unpack has a limit
        call('HSET', inflight, unpack(fields, written + 1, 2 * w - 2))
        written = 2 * w - 2
      end
      if bytes - begun >= 8192 * n then
        chunk = 4
      elseif chunk == 4 or bytes - begun >= 2048 * n then
        chunk = 16
      else
        chunk = 64
      end
    end
    -- Records are written before their jobs leave the queue, if possible.
    if 2 * w - 2 > written then call('HSET', inflight, unpack(fields, written + 1, 2 * w - 2)) end
    written = 2 * w - 2
    if popped then
      if n == 0 then call('LPUSH', key, popped) end
    elseif n > 0 then
      call('LTRIM', key, fmt('%d', n), '-1')
    end
    if going and bytes < maxbytes then
      nextqueue = nextqueue + 1
    elseif going then
      if w <= nwant and (nextqueue < nqueue or call('LLEN', key) > 0) then reply[2] = 1 end
      nextqueue = nqueue + 1 -- the others have to wait
    end
  end
  if going and (nextqueue > nqueue or w > nwant) then
    for i = w + 2, nwant + 2 do reply[i] = nil end
    return reply
  end
  -- The next queues, or all for exchange_slow.
  local n = nwant > 0 and nqueue or 0
  if going then n = math.min(nread + 16, n) end
  for i = nread + 1, n do
    local a, b, c, d, m = byte(list, readat, readat + 4)
    local from = readat + 5 + m
    if m > 0 then lastmode = sub(list, readat + 5, from - 1) end
    readat = from + ((a * 256 + b) * 256 + c) * 256 + d
    names[i], modes[i] = sub(list, from, readat - 1), lastmode
  end
  nread = n
  if not going then break end -- the rest is for exchange_slow
  -- Of many queues, most are empty, which one command shows for several.
  local keys = {}
  for i = nextqueue, n do keys[i - nextqueue + 1] = prefix .. 'queue:' .. names[i] end
  local lined = obstacles.lines and nextqueue <= n and pcall_('HMGET', prefix .. 'resqued:lined', unpack(names, nextqueue, n)) or {}
  going = not lined.err
  for i = 1, going and n - nextqueue + 1 or 0 do going = going and not lined[i] end
  if not going then -- some of these queues have lines
  elseif pcall_('EXISTS', unpack(keys)) == 0 then
    nextqueue = n + 1
  else
    for i = nextqueue, n do keys[i - nextqueue + 1] = prefix .. 'pause:queue:' .. names[i] end
    going = pcall_('EXISTS', unpack(keys)) == 0
  end
end

-- The rest is one function. If the chunk itself defined functions, Lua would search the chunk's shared
-- variables for each one that a function uses; inside this function it does not. That saves a sixth or more of
-- the instructions of a call for one job (TestServerInstructions). Only 60 variables can be shared, so those
-- used in one place are parameters.
local function rest(nother, othersat, queuesat, sending, headends, repeated, fields, modes, nextqueue, wants, wantat, lead, tail, style)
