-- retry marks failure records as retried and pushes their jobs, or removes records:
-- each record only if it still stands there, byte by byte.
--
-- KEYS[1] failed
-- ARGV    prefix, then per record: its index as it was read, the record, what takes its
--         place ('' nothing), queue ('' to push nothing), payload, whether the queue is
--         unique (1|0)
-- RETURNS one letter for each record as one text: r (done), u (marked as retried; an
--         equal job waits, nothing was pushed), g (gone or changed since it was read),
--         x (its queue holds something else than it should; nothing was done)

local key, prefix = KEYS[1], ARGV[1]
local n = len(key)
if not n then return redis.error_reply('RESQUEDTYPE ' .. key .. ' is no list; move it away') end
if type(pcall_('SCARD', prefix .. 'queues')) ~= 'number' then
  return redis.error_reply('RESQUEDTYPE ' .. prefix .. 'queues is no set; move it away')
end
need(key, 'LSET', 'LREM')
need(prefix .. 'queue:', 'RPUSH')
needcompanions(prefix)
call('PERSIST', key) -- the first write: a full server does not refuse the rest

-- place finds a record. Those removed before it have moved it toward the head.
local function place(record, index)
  if call('LINDEX', key, index) == record then return index end
  local at = pcall_('LPOS', key, record, 'MAXLEN', 100000)
  if type(at) ~= 'table' then return at end
  local first = math.max(0, index - 200) -- a server before 6.0.6
  for i, other in ipairs(call('LRANGE', key, first, index)) do
    if other == record then return first + i - 1 end
  end
  return false
end

local done = {}
local ms = now()
local start = fmt('%.0f', math.floor(ms / 1000))
local hole, holes, lowest = '\0' .. redis.sha1hex(key .. ms), 0, n
for i = 2, #ARGV, 6 do
  local index, record, instead = tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2]
  local queue, payload = ARGV[i + 3], ARGV[i + 4]
  local target = prefix .. 'queue:' .. queue
  local unique = ARGV[i + 5] == '1' or queue ~= '' and call('EXISTS', target .. ':uniqueue') == 1
  local at = place(record, index)
  if not at then
    done[#done + 1] = 'g'
  elseif queue ~= '' and (not len(target) or unique and not utyped(target)) then
    done[#done + 1] = 'x'
  else
    done[#done + 1] = 'r'
    if instead == '' then
      call('LSET', key, at, hole)
      holes, lowest = holes + 1, math.min(lowest, at)
    else
      call('LSET', key, at, instead)
    end
    if queue ~= '' and not putback(prefix, queue, payload, unique and start or '-', false) then done[#done] = 'u' end
  end
end
if holes > 0 then call('LREM', key, lowest < n / 2 and holes or -holes, hole) end
return table.concat(done)
