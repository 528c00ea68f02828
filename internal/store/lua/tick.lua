-- tick enqueues the jobs of a schedule that is due: once for each tick, however many daemons ask. The
-- schedule's record must be the one from which the caller computed the ticks, so the second caller finds
-- another one.
--
-- KEYS[1]   resqued:cron
-- ARGV[1]   prefix
-- ARGV[2]   name of the schedule
-- ARGV[3]   record as known ('' none)
-- ARGV[4]   print: the fingerprints of the times and of the job, with a hyphen between them
-- ARGV[5]   since (ms)
-- ARGV[6]   last tick (ms; '' none: the schedule begins now)
-- ARGV[7]   time from which the next ticks count (ms; '' now)
-- ARGV[8]   number of ticks missed
-- ARGV[9]   number of ticks for which to enqueue
-- ARGV[10]  queue
-- ARGV[11]  payload
-- ARGV[12]  flags: u unique, s strict; c the definition replaces another one with the same times,
--           and nothing is enqueued
-- ARGV[13]  if_running: queue (always enqueue), unique (unless a job waits), skip (unless a job
--           waits or runs)
-- ARGV[14]  definition in persistent_schedules ('' not kept there)
-- ARGV[15]  definition for people ('' unchanged)
-- ARGV[16]  time for delayed:last_enqueued_at
-- ARGV[17]  master lock of resque-scheduler ('' none)
-- ARGV[18]  the caller's name in it
-- ARGV[19]  keeper, as in schedules ('' none): noted with a record that begins or gets this definition
-- RETURNS   {'DONE', ms, record, enqueued, skipped, duplicates}; or, without having done anything,
--           {'CHANGED', ms, record}, {'EARLY', ms}, {'GONE', ms} it is no longer in
--           persistent_schedules, {'HELD', ms, holder} another scheduler has the lock,
--           {'STUCK', ms, reason}; error NOPERM: nothing was done
-- COST      about 15 commands, and 2 per job; O(jobs). Unless if_running is queue, a search through
--           up to 200,000 jobs of the queue and 3 per line, at most 10,000; with skip also those of
--           inhand and among in classlock.
--
-- A record is "1 <print> <since> <counted from> <last tick> <when it was handled> <outcome> <enqueued>
-- <missed>"; times in ms, 0 for none.

local prefix, name, known = ARGV[1], ARGV[2], ARGV[3]
local tick, queue, payload, flags = ARGV[6], ARGV[10], ARGV[11], ARGV[12]
local lasts, definitions, notes = prefix .. 'delayed:last_enqueued_at', prefix .. 'resqued:schedules', prefix .. 'resqued:schedules:kept'
local key, unique = prefix .. 'queue:' .. queue, find(flags, 'u', 1, true)
local ms = now()

local record = pcall_('HGET', KEYS[1], name)
if refused(record) then
  checked(record)
  return {'STUCK', ms, KEYS[1] .. ' is not a hash'}
end
if (record or '') ~= known then return {'CHANGED', ms, record or ''} end
if match(known, '^%d+ ') and not find(known, '^1 ') then
  return {'STUCK', ms, 'its record in ' .. KEYS[1] .. ' was written by another version of resqued'}
end
if tick ~= '' and tonumber(tick) > ms then return {'EARLY', ms} end
if ARGV[14] ~= '' and query('HGET', prefix .. 'persistent_schedules', name) ~= ARGV[14] then return {'GONE', ms} end

local stuck = queueobstacle(key, unique) or notset(prefix .. 'queues')
if not stuck and find(flags, 's', 1, true) and not instep(key, len(key)) then
  stuck = queue .. ' and its keys do not match; run: resqued locks repair ' .. queue
end
for _, hash in ipairs({definitions, lasts}) do
  if type(query('HLEN', hash)) ~= 'number' then stuck = stuck or hash .. ' is not a hash' end
end
if stuck then return {'STUCK', ms, stuck} end
local ours, holder = incharge(ARGV[17], ARGV[18])
if not ours then return {'HELD', ms, holder} end

-- busy reports whether jobs of the schedule have not ended.
local function busy()
  if ARGV[13] == 'queue' then return false end
  local deep = 100000
  elements_left = elements_left + 2 * deep -- one search, which may go deeper than those for jobs
  local function look(list) return found(list, payload, len(list) or 0, deep) end
  if look(key) or inline(prefix, queue, payload, look) then return true end
  return ARGV[13] == 'skip' and (inhand(prefix, queue, payload) or among(prefix .. 'resqued:suspects:' .. queue, payload, true))
end

local function note(outcome, enqueued)
  local from, seen = ARGV[7], 0
  if tick ~= '' then seen = ms end
  if from == '' then from = fmt('%.0f', ms) end
  record = fmt('1 %s %s %s %s %.0f %s %d %s', ARGV[4], ARGV[5], from, tick == '' and '0' or tick, seen, outcome, enqueued, ARGV[8])
  call('HSET', KEYS[1], name, record)
end

-- keep notes that a daemon has this definition, as it may end or be reloaded before its next look.
local function keep()
  if ARGV[19] ~= '' then pcall_('HSET', notes, name, fmt('%.0f %s', ms, ARGV[19])) end
end

if find(flags, 'c', 1, true) then
  record = string.gsub(known, '^1 %S+ %S+', function() return fmt('1 %s %s', ARGV[4], ARGV[5]) end)
  call('HSET', KEYS[1], name, record)
  keep()
  if ARGV[15] ~= '' then call('HSET', definitions, name, ARGV[15]) end
  return {'DONE', ms, record, 0, 0, 0}
end

-- The first write, which a full server refuses with nothing done.
note('enqueued', 0)
if tick == '' then keep() end
if ARGV[15] ~= '' then call('HSET', definitions, name, ARGV[15]) end
local enqueued, skipped, duplicates, jobs = 0, 0, 0, tonumber(ARGV[9])
-- One search serves all of the ticks: when the first job waits, the others would find it.
if jobs > 0 and busy() then
  skipped = jobs
elseif jobs > 0 then
  local start = unique and fmt('%.0f', math.floor(ms / 1000)) or '-'
  if putback(prefix, queue, payload, start, false) then enqueued = 1 else duplicates = 1 end
  if ARGV[13] ~= 'queue' and enqueued == 1 then
    skipped = jobs - 1
  elseif unique then
    duplicates = jobs - enqueued
  else
    for _ = 2, jobs do
      putback(prefix, queue, payload, start, false)
      enqueued = enqueued + 1
    end
  end
end
if enqueued > 0 then call('HSET', lasts, name, ARGV[16]) end
note(tick == '' and 'new' or enqueued > 0 and 'enqueued' or skipped > 0 and 'skipped' or duplicates > 0 and 'duplicate' or 'missed', enqueued)
return {'DONE', ms, record, enqueued, skipped, duplicates}
