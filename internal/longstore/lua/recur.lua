-- recur starts runs of a recurring long job for subjects that are due. A tick is one call that begins it and
-- as many more as its subjects need; these name it by the time at which it began.
--
-- Each subject has one number: when its last run was enqueued, by any caller, in ms; or, negative, since when
-- the subject is known, if it has had none. It is due an interval after its last run, to the nearest tick.
-- Subjects without a run may start at once, but evenly: there is credit for as many as the interval allows,
-- which each start uses up. The caller offers the longest waiting ones first.
--
-- A tick starts no more runs than belong to the time since the last one, capped at ARGV[7]: a backlog after
-- an outage does not start at once.
--
-- KEYS[1]   resqued:longjob:recur:<class>
-- ARGV[1]   prefix
-- ARGV[2]   class
-- ARGV[3]   1 to begin a tick, else 0
-- ARGV[4]   when the last tick, or this one, began (ms), or ''
-- ARGV[5]   starts per ms
-- ARGV[6]   time between ticks (ms)
-- ARGV[7]   how much time since the last tick counts at most (ms)
-- ARGV[8]   most runs that may wait or run
-- ARGV[9]   how long a superseded run is kept (ms)
-- ARGV[10]  how long all this is remembered (ms)
-- ARGV[11]  f, the number of field/value pairs
-- ARGV[12…] per pair: field, value; then per subject: uuid, kind, args, queue, queue of further
--           slices or '', tenant or '', payload, what is known of it, its interval (ms)
-- RETURNS   {'CHANGED'} another tick has begun; {'EARLY'}; {'PAUSED'}; {'FORGOTTEN'} the job was
--           removed; or {'OK', when this tick began (ms), how many it may still start, one letter
--           per subject: s (started), r (one waits or runs), m (moved: it started otherwise), c (no
--           credit), b (no more may start)}; error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 10 commands, 1 per pair, about 8 per subject and 20 per start; a call that
--           begins a tick 1 more for each of up to 1,000 runs that wait or run; O(n)

local prefix, class, begins, known = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4]
local rate, every, most, backlog, keep = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local ms = now()
local subjects, starts, index = subjectskey(prefix, class), startskey(prefix, class), prefix .. 'resqued:longjob:recurring'
local v = call('HMGET', KEYS[1], 'at', 'left', 'credit', 'paused')
if (v[1] or '') ~= known then return {v[1] and 'CHANGED' or 'FORGOTTEN'} end

local first = 12 + 2 * tonumber(ARGV[11])
needhash(subjects)
for _, key in ipairs({starts, index}) do
  if not counts('SCARD', key) then return redis.error_reply('RESQUEDTYPE ' .. key .. ' is not a set; move it away') end
end
for i = first, #ARGV, 9 do
  needlong(prefix, ARGV[i], ARGV[i + 3])
  needtenant(prefix, ARGV[i + 5])
  local old = call('HGET', currentkey(prefix), ARGV[i + 1])
  if old then needhash(runkey(prefix, old)) end
end

local left, credit = tonumber(v[2] or 0), tonumber(v[3] or 0)
if begins then
  local passed = v[1] and ms - tonumber(v[1]) or every
  if passed < 0 then passed = every end -- the clock was set back
  if passed < every / 2 then return {'EARLY'} end
  passed = math.min(passed, most)
  left, credit = math.ceil(rate * passed - 1e-6), math.min(credit + rate * passed, math.max(1, rate * most))
  if not v[1] then credit = math.max(1, credit) end
  known = fmt('%.0f', ms)
  call('HSET', KEYS[1], 'at', known, 'left', fmt('%d', left), 'credit', fmt('%.9g', credit))
  for i = 12, first - 1, 2 do call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
  call('SADD', index, class)
end
if v[4] == '1' then
  for _, key in ipairs({KEYS[1], subjects, starts}) do call('PEXPIRE', key, ARGV[10]) end
  return {'PAUSED'}
end

local waiting = call('SRANDMEMBER', starts, 1000) -- of very many, a different part each time
local active_ = call('SCARD', starts)
for _, id in ipairs(waiting) do
  if begins and not active(query('HGET', runkey(prefix, id), 'status')) then
    call('SREM', starts, id)
    active_ = active_ - 1
  end
end

local outcomes = {}
for i = first, #ARGV, 9 do
  local id, kind, note, interval = ARGV[i], ARGV[i + 1], call('HGET', subjects, ARGV[i + 1]), tonumber(ARGV[i + 8])
  local old = call('HGET', currentkey(prefix), kind)
  local n = tonumber(note or 0)
  local fresh = n < 0 and ms < interval - n
  if left < 1 or active_ >= backlog then
    outcomes[#outcomes + 1] = 'b'
  elseif note ~= ARGV[i + 7] then
    outcomes[#outcomes + 1] = 'm'
  elseif old and active(call('HGET', runkey(prefix, old), 'status')) then
    outcomes[#outcomes + 1] = 'r'
  elseif fresh and credit < 1 - 1e-6 then
    outcomes[#outcomes + 1] = 'c'
  else
    addrun(prefix, id, kind, class, ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6], ms)
    if old then displace(prefix, old, keep, ms) end
    left, credit, active_ = left - 1, math.max(0, credit - 1), active_ + 1
    outcomes[#outcomes + 1] = 's'
  end
end
call('HSET', KEYS[1], 'left', fmt('%d', left), 'credit', fmt('%.9g', credit))
for _, key in ipairs({KEYS[1], subjects, starts}) do call('PEXPIRE', key, ARGV[10]) end
return {'OK', known, left, table.concat(outcomes)}
