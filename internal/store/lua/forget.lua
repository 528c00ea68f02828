-- forget is appended to the scripts that remove a process whose last job is gone.
local function forget(prefix, proc)
  local info = prefix .. 'resqued:proc:' .. proc
  local ids = pcall_('HGET', info, 'workers')
  if type(ids) == 'string' then
    for id in string.gmatch(ids, '[^\n]+') do
      pcall_('SREM', prefix .. 'workers', id)
      call('DEL', prefix .. 'worker:' .. id, prefix .. 'worker:' .. id .. ':started',
        prefix .. 'stat:processed:' .. id, prefix .. 'stat:failed:' .. id)
    end
  end
  call('DEL', info, prefix .. 'resqued:held:' .. proc, prefix .. 'resqued:kills:' .. proc)
  call('ZREM', prefix .. 'resqued:procs', proc)
end
