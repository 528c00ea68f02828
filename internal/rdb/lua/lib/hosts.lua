-- hosts knows the last sign of life of a host: a beat of one of its processes, or a renewal of one of
-- its masters' entries.
--
-- DEFINES  signs(prefix, place, ms, after, ttl): nil where no process of the place is registered that has a
--          lease; else a table: last (ms) its last sign of life, procs, boot and address of one that says
--          them, silent whether it gave none for after (ms), or 0 = two and a half of its own beats. ttl
--          (ms) is how long the entry of a master lives. One of whose processes does not say how it beats is never silent
-- NEEDS    base
-- KEYS     reads resqued:place:<place>, resqued:procs, resqued:proc:*, resqued:master:*
-- COST     2 commands, 2 per process, 1 per master; O(processes)

local function signs(prefix, place, ms, after, ttl)
  local key = prefix .. 'resqued:place:' .. place
  local size = pcall_('SCARD', key)
  if type(size) ~= 'number' or size == 0 or size > 2000 then return nil end
  local h, asked = {last = -2 ^ 53, procs = {}, silent = true, boot = '', address = ''}, {}
  local function sign(last, silence)
    last = math.min(last, ms)
    h.last = math.max(h.last, last)
    if ms - last < silence then h.silent = false end
  end
  for _, proc in ipairs(call('SMEMBERS', key)) do
    local lease = tonumber(call('ZSCORE', prefix .. 'resqued:procs', proc) or 0)
    if lease and lease > 0 then
      h.procs[#h.procs + 1] = proc
      local v = pcall_('HMGET', prefix .. 'resqued:proc:' .. proc, 'lease_ms', 'beat_ms', 'boot_id', 'address')
      local long, every = tonumber(v[1] or ''), tonumber(v[2] or '')
      local silence = after > 0 and after or 2.5 * (every or 10000)
      sign(lease - (long or 35000), silence)
      if not long or not every then h.silent = false end
      if h.boot == '' and type(v[3]) == 'string' then h.boot = v[3] end
      if h.address == '' and type(v[4]) == 'string' then h.address = v[4] end
      local master = match(proc, '^(.*):[^:]*$')
      if master and not asked[master] then
        asked[master] = true
        local left = pcall_('PTTL', prefix .. 'resqued:master:' .. master)
        if type(left) == 'number' and left > 0 then sign(ms - math.max(0, ttl - left), silence) end
      end
    end
  end
  return #h.procs > 0 and h or nil
end
