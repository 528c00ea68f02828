-- schedules returns the state of schedules. It notes which of those with a current definition the caller has: a
-- schedule whose note was not renewed for a while belongs to daemons that have left or were reloaded without
-- it. A note is "<ms> <keeper>".
--
-- KEYS[1]   persistent_schedules
-- ARGV[1]   prefix
-- ARGV[2]   digest of the known ones in persistent_schedules ('-' not to look for them)
-- ARGV[3]   master lock of resque-scheduler ('' none)
-- ARGV[4]   the caller's name in it
-- ARGV[5]   keeper of schedules ('' the caller keeps none)
-- ARGV[6]   age (ms) from which on a note is renewed
-- ARGV[7…]  per schedule: name, print
-- RETURNS   {time (ms), whether the lock is the caller's (1|0), its holder, digest ('many': too many
--           for one script), {name, definition, …} unless they are known, {record or false per
--           name}, {when it was last enqueued, as resque-scheduler notes it, or false}, {name,
--           note, …}}; error RESQUEDTYPE or NOPERM: no note was written
-- COST      5 commands, and 2 or 3 per schedule; O(n), and at most 1,000 definitions

local prefix, known = ARGV[1], ARGV[2]
local keeper, age = ARGV[5], tonumber(ARGV[6])
local notes = prefix .. 'resqued:schedules:kept'
local ms = now()
local digest, stored = known, {}
if known ~= '-' then
  local n = pcall_('HLEN', KEYS[1])
  local many = type(n) == 'number' and n > 1000
  local all = many and {} or pcall_('HGETALL', KEYS[1])
  if all.err then
    checked(all)
    return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is not a hash; move it away')
  end
  local sums = {}
  for i = 1, #all, 2 do sums[#sums + 1] = redis.sha1hex(all[i]) .. redis.sha1hex(all[i + 1]) end
  table.sort(sums) -- a server may return them in any order
  digest = many and 'many' or redis.sha1hex(table.concat(sums))
  if digest ~= known then stored = all end
end
local ours, holder = incharge(ARGV[3], ARGV[4])
local records, last = {}, {}
for i = 7, #ARGV, 2 do
  records[#records + 1] = query('HGET', prefix .. 'resqued:cron', ARGV[i])
  local at = pcall_('HGET', prefix .. 'delayed:last_enqueued_at', ARGV[i])
  last[#last + 1] = type(at) == 'string' and at
end
for i, record in ipairs(records) do
  if refused(record) then return redis.error_reply('RESQUEDTYPE ' .. prefix .. 'resqued:cron is not a hash; move it away') end
end
local kept = pcall_('HGETALL', notes)
if refused(kept) then
  checked(kept)
  return redis.error_reply('RESQUEDTYPE ' .. notes .. ' is not a hash; move it away')
end
if keeper ~= '' then
  local noted = {}
  for i = 1, #kept, 2 do noted[kept[i]] = tonumber((string.match(kept[i + 1], '^%d+'))) end
  for i, record in ipairs(records) do
    local name, print = ARGV[5 + 2 * i], ARGV[6 + 2 * i]
    -- Not so often that all daemons write all of them each time; a clock may be set back.
    if record and string.match(record, '^1 (%S+)') == print and math.abs(ms - (noted[name] or 0)) >= age then
      call('HSET', notes, name, fmt('%.0f %s', ms, keeper))
    end
  end
end
return {ms, ours and 1 or 0, holder or '', digest, stored, records, last, kept}
