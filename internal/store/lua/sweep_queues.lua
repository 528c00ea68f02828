-- sweep_queues continues a walk through the names of all queues. It notes since when nothing waits in a queue,
-- for the removal of such names; queues whose names were removed long ago get them back if they hold jobs.
--
-- KEYS[1]   queues
-- ARGV[1]   prefix
-- ARGV[2]   position of the walk; '' begins one, for the first caller in a while
-- ARGV[3]   caller
-- ARGV[4]   that while (ms); up to ten times as long with more than 10,000 names
-- ARGV[5]   n, about how many names to check
-- RETURNS   {next position; '' the walk has ended or is another caller's, ms, how many names were
--           restored}; error RESQUEDTYPE: a key has the wrong type, nothing was done
-- COST      about 7 commands, 1 per 20 empty queues, 2 per queue with any key; O(n)

local prefix, at, caller, every = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local turn, idle, gone = prefix .. 'resqued:sweeper', prefix .. 'resqued:empty', prefix .. 'resqued:pruned'
local size = query('SCARD', KEYS[1])
if type(size) ~= 'number' then return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is not a set; move it away') end
for _, key in ipairs({idle, gone}) do
  if type(query('ZCARD', key)) ~= 'number' then return redis.error_reply('RESQUEDTYPE ' .. key .. ' is not a sorted set; move it away') end
end
every = fmt('%.0f', every * math.max(1, math.min(10, size / 10000)))
local ms = now()
local stamp = fmt('%.0f', ms)
if at == '' then
  local mine = pcall_('SET', turn, caller, 'PX', every, 'NX')
  if refused(mine) then return mine end
  if not mine then return {'', ms, 0} end
  at = 'q0'
  -- Times in the future were noted before the clock was set back.
  for _, queue in ipairs(call('ZRANGEBYSCORE', idle, fmt('%.0f', ms + 60000), '+inf', 'LIMIT', 0, 100)) do
    call('ZADD', idle, stamp, queue)
  end
  call('ZREMRANGEBYSCORE', gone, '-inf', fmt('%.0f', ms - 8640000000)) -- 100 days
elseif query('GET', turn) == caller then
  call('PEXPIRE', turn, every)
else
  return {'', ms, 0}
end

local cursor = sub(at, 2)
if sub(at, 1, 1) == 'p' then
  local part, names = call('ZSCAN', gone, cursor, 'COUNT', ARGV[5]), {}
  for i = 1, #part[2], 2 do names[#names + 1] = part[2][i] end
  local back = pruned.back(prefix, names)
  return {part[1] == '0' and '' or 'p' .. part[1], ms, back}
end

-- The keys of a queue in use. A queue of jobs that have died keeps their deaths.
local function around(queue, keys)
  local key = prefix .. 'queue:' .. queue
  for _, k in ipairs({
    key, key .. ':uniqueue', key .. ':start_at', prefix .. 'pause:queue:' .. queue, prefix .. 'resqued:suspects:' .. queue,
    prefix .. 'resqued:lines:' .. queue, prefix .. 'resqued:turns:' .. queue, prefix .. 'resqued:deaths:' .. queue,
  }) do keys[#keys + 1] = k end
  return keys
end

local part = call('SSCAN', KEYS[1], cursor, 'COUNT', ARGV[5])
local names, empty, used = part[2], {}, {}
for from = 1, #names, 20 do
  local to, keys = math.min(#names, from + 19), {}
  for i = from, to do around(names[i], keys) end
  local any = query('EXISTS', unpack(keys)) > 0
  for i = from, to do
    if any and query('EXISTS', unpack(around(names[i], {}))) > 0 then
      used[#used + 1] = names[i]
    else
      empty[#empty + 1] = stamp
      empty[#empty + 1] = names[i]
    end
  end
end
for from = 1, #empty, 1000 do call('ZADD', idle, 'NX', unpack(empty, from, math.min(#empty, from + 999))) end
for from = 1, #used, 1000 do call('ZREM', idle, unpack(used, from, math.min(#used, from + 999))) end
return {part[1] == '0' and 'p0' or 'q' .. part[1], ms, 0}
