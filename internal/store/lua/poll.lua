-- poll tells which queues hold jobs, and moves requeued jobs whose time has come
-- back to their queues. An idle process calls nothing else.
--
-- KEYS[1] queues
-- ARGV    prefix, cursor ('' = look only at the queues named, else the cursor
--         into the set of all queues), then the names of fixed queues
-- RETURNS {next cursor, waiting queue, …}; a next cursor of '0' ends a pass

local prefix, cursor = ARGV[1], ARGV[2]

local due = pcall_('ZCARD', prefix .. 'resqued:delayed')
if type(due) == 'number' and due > 0 then
  local ms = now()
  local members = call('ZRANGEBYSCORE', prefix .. 'resqued:delayed', '-inf', fmt('%.0f', ms), 'LIMIT', 0, 100)
  for _, member in ipairs(members) do
    local n, i = match(member, '^[^#]*#[^ ]* (%d+) ()')
    n = tonumber(n)
    local queue = n and sub(member, i, i + n - 1)
    if queue and len(prefix .. 'queue:' .. queue) then
      call('ZREM', prefix .. 'resqued:delayed', member)
      call('RPUSH', prefix .. 'queue:' .. queue, sub(member, i + n))
      pcall_('SADD', prefix .. 'queues', queue)
    else
      -- Its queue is no list now. It must not keep those behind it from being seen.
      pcall_('ZADD', prefix .. 'resqued:delayed', fmt('%.0f', ms + 1000), member)
    end
  end
end

local names = {}
if cursor ~= '' then
  local size = pcall_('SCARD', KEYS[1])
  if type(size) ~= 'number' then
    return redis.error_reply('RESQUEDTYPE ' .. KEYS[1] .. ' is no set; move it away')
  end
  -- A whole set of a million names would block the server for seconds.
  if cursor == '0' and size <= 2000 then
    names = call('SMEMBERS', KEYS[1])
  else
    local part = call('SSCAN', KEYS[1], cursor, 'COUNT', 1000)
    cursor, names = part[1], part[2]
  end
end
local reply = {cursor}
local function look(queue)
  local n = len(prefix .. 'queue:' .. queue)
  if n and n > 0 then reply[#reply + 1] = queue end
end
for _, queue in ipairs(names) do look(queue) end
for i = 3, #ARGV do look(ARGV[i]) end
return reply
