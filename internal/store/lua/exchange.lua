-- exchange ends finished jobs and reserves new ones: the one script of the hot
-- path. Completions come first, so that what they free can be taken at once.
--
-- KEYS[1] resqued:inflight:<proc>
-- ARGV    prefix, proc, master, lock TTL (s), scan bound, repeat (1|0), lock key
--         style, number of completions, of wants, of queues, of this sending; then
--         per completion: token, kind (d f r b), queue, lock key, capped (1|''),
--           worker if mirrored else '', deaths, failure record or '', delay (ms)
--         per want: token, worker
--         per queue: name, cap (0 none), locked (1|0)
-- RETURNS {'FENCED'} if the process has no valid lease: nothing was done; else
--         {'OK', bounced, more (1|0), one of 1 (applied) 0 (late) x (stuck) for
--          each completion as one text, {reasons of the stuck}, {queues that are
--          no lists}, token, record, token, record, …}

local inflight = KEYS[1]
local prefix, proc, master, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local bound, again, style = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7]
local ncomp, nwant, nqueue = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local sending, arg = tonumber(ARGV[11]), 12
local ms, us = now()

local lease = tonumber(pcall_('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
if not lease or lease < ms then return {'FENCED'} end
if type(pcall_('HLEN', inflight)) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. inflight .. ' is no hash; move it away')
end

local failedkey, counters, deathkey =
  prefix .. 'failed', prefix .. 'locket:queue_lock_counters', prefix .. 'resqued:deaths'
local applied, reasons = {}, {}
local processed, failed, freed = 0, 0, false

for c = 1, ncomp do
  local token, kind, queue, lock = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
  local capped, worker, deaths = ARGV[arg + 4] == '1', ARGV[arg + 5], ARGV[arg + 6]
  local failure, delay = ARGV[arg + 7], tonumber(ARGV[arg + 8])
  arg = arg + 9
  local record, stuck
  if kind == 'r' or kind == 'b' or deaths ~= '0' then
    record = call('HGET', inflight, token)
    record = record and unpack_(record)
  end
  if kind == 'f' then
    if not len(failedkey) then stuck = failedkey .. ' is no list' end
  elseif kind == 'r' or kind == 'b' then
    if not len(prefix .. 'queue:' .. queue) then
      stuck = prefix .. 'queue:' .. queue .. ' is no list'
    elseif delay > 0 and type(pcall_('ZCARD', prefix .. 'resqued:delayed')) ~= 'number' then
      stuck = prefix .. 'resqued:delayed is no sorted set'
    end
  end
  if stuck then
    applied[c] = 'x'
    reasons[#reasons + 1] = stuck
  elseif call('HDEL', inflight, token) == 0 then
    applied[c] = '0'
  else
    applied[c] = '1'
    if lock ~= '' then
      release(lock, owner(proc, token))
      freed = true
    end
    if capped then uncap(prefix, master, queue) end
    if worker ~= '' then call('DEL', prefix .. 'worker:' .. worker) end
    if kind == 'd' or kind == 'f' then
      processed = processed + 1
      if deaths ~= '0' and record then pcall_('HDEL', deathkey, corpse(queue, record.payload)) end
      if kind == 'f' then
        call('RPUSH', failedkey, failure)
        failed = failed + 1
      end
    elseif record then
      -- Somebody may have removed the queue while the job ran.
      pcall_('SADD', prefix .. 'queues', queue)
      if kind == 'b' then
        call('LPUSH', prefix .. 'queue:' .. queue, record.payload)
      elseif delay > 0 then
        call('ZADD', prefix .. 'resqued:delayed', fmt('%.0f', ms + delay),
          proc .. '#' .. token .. ' ' .. #queue .. ' ' .. queue .. record.payload)
      else
        call('RPUSH', prefix .. 'queue:' .. queue, record.payload)
      end
    end
  end
end
if processed > 0 then pcall_('INCRBY', prefix .. 'stat:processed', processed) end
if failed > 0 then pcall_('INCRBY', prefix .. 'stat:failed', failed) end
if freed then pcall_('DEL', counters) end

local reply = {'OK', 0, 0, table.concat(applied), reasons, {}}
if nwant == 0 then return reply end

-- A request whose answer did not come may have been under way still when it was
-- repeated. What it popped now, under tokens that are used up, nobody would run.
local info = prefix .. 'resqued:proc:' .. proc
if (tonumber(pcall_('HGET', info, 'repeated') or 0) or 0) > sending then return reply end
if again then
  call('PERSIST', info) -- see register: a full server must not refuse the rest
  pcall_('HSET', info, 'repeated', ARGV[11])
end

local wants = {}
for w = 1, nwant do
  local token, worker = ARGV[arg], ARGV[arg + 1]
  arg = arg + 2
  local held = again and call('HGET', inflight, token)
  if held then
    reply[#reply + 1] = token
    reply[#reply + 1] = held
  else
    wants[#wants + 1] = {token, worker}
  end
end

local fencekey, fence = prefix .. 'resqued:fence', nil
local bounced, more, budget = 0, 0, bound * 4
local bytes, maxbytes = 0, 4194304 -- a reply of many large payloads would block the server
local anydeaths = nil
local w = 1

-- take gets the lock for a record of this process. A lock whose record is gone
-- is taken over; any foreign value counts as held until it expires.
local function take(lock, value)
  if call('SET', lock, value, 'NX', 'EX', ttl) then return true end
  local held = pcall_('GET', lock)
  if type(held) ~= 'string' then return false end
  local p, t = match(held, '^resqued:(.*)#([^#]*)$')
  if p and pcall_('HEXISTS', prefix .. 'resqued:inflight:' .. p, t) == 0 then
    call('SET', lock, value, 'EX', ttl)
    return true
  end
  return false
end

for _ = 1, nqueue do
  if w > #wants or bytes >= maxbytes then break end
  local queue, cap, locked = ARGV[arg], tonumber(ARGV[arg + 1]), ARGV[arg + 2] == '1'
  arg = arg + 3
  local key = prefix .. 'queue:' .. queue
  local left = len(key)
  if not left then
    table.insert(reply[6], queue)
  elseif left > 0 then
    local room = #wants
    local capkey = prefix .. 'resqued:caps:' .. master
    if cap > 0 then
      local used = tonumber(pcall_('HGET', capkey, queue) or 0)
      room = cap - (used or 0)
    end
    if locked and room > 0 then
      local count = pcall_('HGET', counters, queue)
      count = type(count) == 'string' and tonumber(count) or 0
      if count > 0 and count >= left then room = 0 end
    end
    local scan, here = math.max(1, math.min(bound, budget)), 0
    while room > 0 and left > 0 and w <= #wants do
      local payload = call('LPOP', key)
      if not payload then break end
      left = left - 1
      local token, worker = wants[w][1], wants[w][2]
      local lock, n = '', '0'
      local free = true
      if locked then
        local ok, name = pcall(lockname, payload, style)
        lock = prefix .. 'locket:job_locks:' .. (ok and name or redis.sha1hex(payload))
        free = take(lock, owner(proc, token))
      end
      if free then
        if locked then
          if not fence then
            fence = tonumber(pcall_('GET', fencekey) or 0) or 0
            if fence < us then fence = us end
          end
          fence = fence + 1
          n = fmt('%.0f', fence)
        end
        if anydeaths == nil then
          local d = pcall_('HLEN', deathkey)
          anydeaths = type(d) == 'number' and d > 0
        end
        local deaths = anydeaths and tonumber(call('HGET', deathkey, corpse(queue, payload)) or 0) or 0
        local r = pack({queue = queue, worker = worker, lock = lock, cap = cap > 0 and master or '',
          fence = n, deaths = deaths, at = fmt('%.0f', ms), payload = payload})
        call('HSET', inflight, token, r)
        if cap > 0 then pcall_('HINCRBY', capkey, queue, 1) end
        reply[#reply + 1] = token
        reply[#reply + 1] = r
        room = room - 1
        w = w + 1
        bytes = bytes + #payload
        if bytes >= maxbytes and w <= #wants then
          more = 1
          break
        end
      else
        call('RPUSH', key, payload)
        here = here + 1
        if here >= scan then
          if left > 0 then more = 1 end
          break
        end
      end
    end
    if here > 0 then
      pcall_('HINCRBY', counters, queue, here)
      bounced = bounced + here
      budget = budget - here
    end
  end
end
if fence then call('SET', fencekey, fmt('%.0f', fence)) end
if #reply == 6 and more == 0 then pcall_('DEL', counters) end
reply[2], reply[3] = bounced, more
return reply
