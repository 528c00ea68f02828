-- orphans returns the processes whose lease has expired, unless a silence of all processes forbids judging (see
-- grace). A fenced process is left to its own master while that lives: it knows how the process ended and
-- handles it. The script removes masters whose entry has expired, the state of empty queues and the death
-- counts of vanished jobs. It restores the removed name of a queue with jobs.
--
-- KEYS[1]   resqued:procs
-- ARGV[1]   prefix
-- ARGV[2]   lease (ms)
-- ARGV[3]   beat interval (ms)
-- ARGV[4]   digest of the settings that a fleet shares ('' none)
-- ARGV[5]   the oldest format that the caller reads
-- ARGV[6]   the newest one
-- ARGV[7]   place of the caller: its host and boot
-- ARGV[8]   id of the calling master ('' none: all fenced processes are returned)
-- RETURNS   {time (ms), {id of a master with another digest, its digest, …}, {process, …},
--           {master or process whose format the caller does not read, that format, its version,
--           its host, …}, {registered process of the place, …}}; processes with an unread format
--           are not among those with an expired lease.
--           error RESQUEDTYPE: the key is not a sorted set, nothing was done
-- COST      about 11 commands, 1 or 2 per process with an expired lease, 1 per process of the place, up to 3 per master
--           (at most 16), 2 or 4 per queue with a counter (at most 1,000), those of age in deaths and of recent in pruned; O(n)

local prefix, lease, every, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), 100
if type(query('ZCARD', KEYS[1])) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is not a sorted set; move it away')
end
-- A random few: every master asks every few seconds, so all are checked soon, and the cost of a fleet grows with its
-- hosts, not with their square.
local others, masters = {}, pcall_('SRANDMEMBER', prefix .. 'resqued:masters', 16)
local unreads = {}
-- foreign notes that the caller does not read the format in v.
local function foreign(id, v)
  if v.err or not unread(v[1], ARGV[5], ARGV[6]) then return false end
  for _, text in ipairs({id, v[1] or '', v[2] or '', v[3] or ''}) do unreads[#unreads + 1] = text end
  return true
end
for _, id in ipairs(masters.err and {} or masters) do
  local v = pcall_('HMGET', prefix .. 'resqued:master:' .. id, 'format', 'version', 'host', 'shared')
  local digest = v[4]
  if foreign(id, v) then -- its settings may mean something else
  elseif type(digest) == 'string' then
    if ARGV[4] ~= '' and digest ~= ARGV[4] then others[#others + 1], others[#others + 2] = id, digest end
  elseif call('EXISTS', prefix .. 'resqued:master:' .. id) == 0 then
    call('SREM', prefix .. 'resqued:masters', id)
  end
end
-- The processes of the place, without those that are no longer registered.
local here, place = {}, prefix .. 'resqued:place:' .. ARGV[7]
local size = pcall_('SCARD', place)
if type(size) == 'number' and size > 0 then
  for _, proc in ipairs(size <= 1000 and call('SMEMBERS', place) or call('SRANDMEMBER', place, 1000)) do
    if call('ZSCORE', KEYS[1], proc) then here[#here + 1] = proc else call('SREM', place, proc) end
  end
end
-- Nothing else removes the state of queues that are gone or that no process works; while there is a counter, no call
-- takes the fast path.
local counters = prefix .. 'locket:queue_lock_counters'
local known = pcall_('HLEN', counters)
local ms, us = now()
if type(known) == 'number' and known > 0 then
  -- Of very many, a different part each time.
  local few = known <= 1000
  local queues = few and call('HKEYS', counters) or call('HSCAN', counters, fmt('%.0f', us % 2 ^ 30), 'COUNT', 500)[2]
  for i = 1, #queues, few and 1 or 2 do
    local queue = queues[i]
    if len(prefix .. 'queue:' .. queue) == 0 or call('EXISTS', prefix .. 'resqued:seen:' .. queue) == 0 then
      forget_seen(prefix, queue)
    end
  end
end
dead.age(prefix, ms)
pruned.recent(prefix, ms)
if unjudged(prefix, ms, lease, every) then return {ms, others, {}, unreads, here} end
-- A lease far in the future is forged, or from before the clock was set back, and would never end. Another daemon may
-- have longer leases than this one, but none is longer than 35 s.
local longest = math.max(lease, 35000)
for _, proc in ipairs(call('ZRANGEBYSCORE', KEYS[1], fmt('%.0f', ms + 2 * longest), '+inf', 'LIMIT', 0, 100)) do
  call('ZADD', KEYS[1], 'XX', fmt('%.0f', ms + longest), proc)
end
-- Fenced ones come after the others, and of many, a different part each time: one whose records cannot be read stays
-- there for good, and must not hide the rest.
local function part(n, size) return us % math.max(1, math.ceil(n / size)) * size end -- with equal probability
local past = '(' .. fmt('%.0f', ms)
-- Processes of another format keep their leases, and must not hide the rest either.
local skip = part(call('ZCOUNT', KEYS[1], '(0', past), most)
local procs = call('ZRANGEBYSCORE', KEYS[1], '(0', past, 'LIMIT', skip, most)
local fenced = call('ZCOUNT', KEYS[1], '-inf', 0)
local room = math.max(most - #procs, most / 2)
local from = part(fenced, room)
if fenced > 0 then
  for _, proc in ipairs(call('ZRANGE', KEYS[1], from, math.min(from + room, fenced) - 1)) do
    local master = match(proc, '^(.*):[^:]*$')
    if not master or ARGV[8] == '' or master == ARGV[8] or call('EXISTS', prefix .. 'resqued:master:' .. master) == 0 then
      procs[#procs + 1] = proc
    end
  end
end
local readable = {}
for _, proc in ipairs(procs) do
  if not foreign(proc, pcall_('HMGET', prefix .. 'resqued:proc:' .. proc, 'format', 'version', 'host')) then
    readable[#readable + 1] = proc
  end
end
return {ms, others, readable, unreads, here}
