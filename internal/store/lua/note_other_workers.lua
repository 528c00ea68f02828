-- note_other_workers notes, in parts, for which queues workers of other programs are registered: jobs of these queues
-- do not wait in lines, where such workers would not find them.
--
-- KEYS[1]   workers
-- ARGV[1]   prefix
-- ARGV[2]   how long no other caller begins (ms)
-- ARGV[3]   '' begins; else the cursor returned by the call before
-- RETURNS   the next cursor; '' this was the last part, or another caller has begun; error NOPERM:
--           nothing was done
-- COST      2 commands to begin, and 5; 1 per queue of another worker; O(workers), about 1,000

local prefix, cursor = ARGV[1], ARGV[3]
local noted, fresh = prefix .. 'resqued:strangers', prefix .. 'resqued:strangers:next'
if cursor == '' then
  call('PERSIST', KEYS[1]) -- a full server accepts this write, and then the others
  if not call('SET', prefix .. 'resqued:strangers:turn', '1', 'NX', 'PX', ARGV[2]) then return '' end
  call('UNLINK', fresh)
  cursor = '0'
end
local part = pcall_('SSCAN', KEYS[1], cursor, 'COUNT', 1000)
if part.err then return '' end
for _, id in ipairs(part[2]) do
  -- <host>:<pid>:<queues>; our ids have ~resqued after the host.
  local queues = not find(id, '~resqued:', 1, true) and match(id, '^[^:]*:[^:]*:(.*)$')
  for queue in string.gmatch(queues or '', '[^,]+') do
    -- A possible pattern counts as all queues.
    if find(queue, '[*?!@%[{]') then queue = '*' end
    call('SADD', fresh, queue)
  end
end
if part[1] ~= '0' then
  call('PEXPIRE', fresh, 60000)
  return part[1]
end
if call('EXISTS', fresh) == 1 then
  call('RENAME', fresh, noted)
  call('PEXPIRE', noted, 10 * tonumber(ARGV[2]))
else
  call('UNLINK', noted)
end
return ''
