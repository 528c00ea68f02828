-- schedules tells how schedules stand, and which ones are kept in Redis.
--
-- KEYS[1] persistent_schedules
-- ARGV    prefix, digest of those that are known ('-' not to look for them), master lock
--         of resque-scheduler ('' none), our name in it, names
-- RETURNS {time of the server (ms), whether the lock is ours (1|0), who holds it, digest
--         (many: they are more than one script should read), {name, definition, …} unless they are as known, {record or false for each
--         name}, {when it was enqueued last, as resque-scheduler notes it, or false}}

local prefix, known = ARGV[1], ARGV[2]
if ARGV[3] ~= '' then need(ARGV[3], 'SET', 'GET', 'EXPIRE') end
local ms = now()
local digest, stored = known, {}
if known ~= '-' then
  local n = pcall_('HLEN', KEYS[1])
  local many = type(n) == 'number' and n > 1000
  local all = many and {} or pcall_('HGETALL', KEYS[1])
  if all.err then
    checked(all)
    return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is no hash; move it away')
  end
  local sums = {}
  for i = 1, #all, 2 do sums[#sums + 1] = redis.sha1hex(all[i]) .. redis.sha1hex(all[i + 1]) end
  table.sort(sums) -- a server may tell them in any order
  digest = many and 'many' or redis.sha1hex(table.concat(sums))
  if digest ~= known then stored = all end
end
local ours, holder = incharge(ARGV[3], ARGV[4])
local records, last = {}, {}
for i = 5, #ARGV do
  records[#records + 1] = query('HGET', prefix .. 'resqued:cron', ARGV[i])
  local at = pcall_('HGET', prefix .. 'delayed:last_enqueued_at', ARGV[i])
  last[#last + 1] = type(at) == 'string' and at
end
for i, record in ipairs(records) do
  if refused(record) then return redis.error_reply('RESQUEDTYPE ' .. prefix .. 'resqued:cron is no hash; move it away') end
end
return {ms, ours and 1 or 0, holder or '', digest, stored, records, last}
