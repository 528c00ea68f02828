-- forget_process removes all data of a process without jobs.
--
-- DEFINES  forget_process(prefix, proc): no result
-- NEEDS    base, records, place, limits
-- KEYS     removes resqued:proc:<proc>, resqued:held:<proc>, resqued:slots:<proc>, resqued:kills:<proc>, its entry in
--          resqued:procs and in resqued:place:<place>, and for each of its workers the entry in workers, worker:<id>,
--          worker:<id>:started, stat:processed:<id>, stat:failed:<id>
-- COST     5 commands, those of collect in limits, and 2 per 1,000 workers; O(workers)

local function forget_process(prefix, proc)
  local info = prefix .. 'resqued:proc:' .. proc
  local ids = pcall_('HGET', info, 'workers')
  if type(ids) == 'string' then
    local names, keys = {}, {}
    local function remove()
      if #names == 0 then return end
      pcall_('SREM', prefix .. 'workers', unpack(names))
      call('DEL', unpack(keys))
      names, keys = {}, {}
    end
    for id in string.gmatch(ids, '[^\n]+') do
      names[#names + 1] = id
      for _, key in ipairs({'worker:' .. id, 'worker:' .. id .. ':started', 'stat:processed:' .. id, 'stat:failed:' .. id}) do
        keys[#keys + 1] = prefix .. key
      end
      if #names == 1000 then remove() end -- unpack has a limit
    end
    remove()
  end
  slots.collect(prefix, proc)
  call('DEL', info, prefix .. 'resqued:held:' .. proc, prefix .. 'resqued:slots:' .. proc, prefix .. 'resqued:kills:' .. proc)
  call('ZREM', prefix .. 'resqued:procs', proc)
  local place = placeof(prefix, proc)
  if place then pcall_('SREM', place, proc) end
end
