-- recover moves the records of a fenced process back to the head of their queues or to failed, frees their locks, and
-- removes the process with its last record. A living process uses it for the records of jobs whose runner has died.
--
-- KEYS[1]   resqued:inflight:<proc>
-- ARGV[1]   prefix
-- ARGV[2]   proc
-- ARGV[3]   1: the process itself calls, and lives; else ''
-- ARGV[4…]  per record: token, action (q requeue, s requeue as a suspect, f fail, m fail into the
--           queue's own list as in Resque's multi-queue failure backend, h to the head without a
--           death, t to the tail without a death), failure record or '', answer to a request to
--           end the job or '', keys that may count the attempts of a failed job, separated by
--           spaces, flags (g the failure record lacks the payload and follows its position; l the
--           payload is too large for it; x park the record if it cannot be moved, see parked)
-- RETURNS   {records left, moved, reason for one that was left or '', {tokens of failed jobs}};
--           {'ALIVE'} the process is not fenced, or {'FENCED'} it calls and is fenced: nothing was
--           done; error NOPERM: nothing was done
-- COST      about 8 commands, and 10 to 20 per record; O(n), and those of freed in
--           blocked_queues. With a unique queue those of putback per record.

local prefix, proc = ARGV[1], ARGV[2]
local ms, us = now()
local lease = call('ZSCORE', prefix .. 'resqued:procs', proc)
local alive, own = lease and tonumber(lease) ~= 0 or false, ARGV[3] == '1'
if alive ~= own then return {alive and 'ALIVE' or 'FENCED'} end
local moved, failed, reason, released = 0, {}, '', {}
local inline = pcall_('EXISTS', prefix .. 'resqued:lined') ~= 0 and linelocks(prefix)

-- died counts the death of a job. Equal jobs share the count: those that died together have died once.
local function died(r, suspect)
  local deaths, blame = dead.of(prefix, r.queue, r.payload)
  deaths = math.max(deaths, r.deaths + 1)
  blame = math.max(blame, r.blame + (suspect and 1 or 0))
  dead.note(prefix, r.queue, r.payload, deaths, blame, ms)
end

-- idof returns the full id of a worker. A record only has the part of a long id that identifies the worker within its
-- process; the process has registered the full one.
local registered = pcall_('HGET', prefix .. 'resqued:proc:' .. proc, 'workers')
local function idof(worker)
  local ids, thread = type(registered) == 'string' and '\n' .. registered or '', match(worker, '^[^:]*:[^:]*:')
  local i = thread and find(ids, '\n' .. thread, 1, true)
  return i and match(ids, '^[^\n]+', i + 1) or worker
end

call('PERSIST', KEYS[1])
for i = 4, #ARGV, 6 do
  local token, action, failure, text, flags = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 5]
  local gap, large = 0, find(flags, 'l', 1, true)
  if find(flags, 'g', 1, true) then gap, failure = parked.gapped(failure) end
  local raw = call('HGET', KEYS[1], token)
  local r = raw and unpack_(raw)
  if raw and not r then
    reason = 'the record of ' .. token .. ' is not one of ours'
  elseif r then
    local list = action == 'm' and parked.listed(prefix, r.queue) or 'failed'
    if action == 'm' then action = 'f' end
    local target = action == 'f' and prefix .. list or (prefix .. 'queue:' .. r.queue)
    local stuck = queueobstacle(target, action ~= 'f' and r.start ~= '-') or large and parked.obstacle(prefix) or nil
    local parks = stuck and find(flags, 'x', 1, true) and not parked.obstacle(prefix)
    if stuck and not parks then
      reason = stuck
    else
      call('HDEL', KEYS[1], token)
      local had = {r.lock} -- and limits
      slots.free(prefix, proc, token, had)
      local id = proc .. '#' .. token
      if parks then
        parks = action == 'f' and (large and 'F' or 'f') or action == 't' and 'r' or 'b'
        parked.keep(prefix, id, parks, ms, r.queue, r.start, r.payload, stuck, gap, action == 'f' and failure or parks == 'b' and r.lock or '')
      end
      if action == 'f' then
        if not parks then parked.file(prefix, list, id, ms, r, failure, gap, large) end
        dead.forget(prefix, r.queue, r.payload)
        for key in string.gmatch(ARGV[i + 4], '%S+') do
          if type(pcall_('GET', prefix .. key)) == 'string' then pcall_('DEL', prefix .. key) end
        end
        failed[#failed + 1] = token
      elseif parks then
        if action ~= 't' and action ~= 'h' then died(r, action == 's') end
      elseif action == 't' then
        local start = r.start
        if start ~= '-' then start = fmt('%.0f', math.floor(ms / 1000)) end
        putback(prefix, r.queue, r.payload, start, false)
      else
        forget_seen(prefix, r.queue) -- its state covers the jobs behind the head
        if not (inline and inline.lead(r.queue, r.payload, had)) then
          putback(prefix, r.queue, r.payload, r.start, true)
        end
        if action ~= 'h' then died(r, action == 's') end
      end
      if text ~= '' then answer(prefix, proc, token, text) end
      drop_held(prefix, proc, token)
      if r.lock ~= '' then
        release(r.lock, owner(proc, token))
      end
      for _, lock in ipairs(had) do
        if lock ~= '' then released[#released + 1] = lock end
      end
      uncap(prefix, r.cap, r.queue)
      call('DEL', prefix .. 'worker:' .. idof(r.worker))
      moved = moved + 1
    end
  end
end
if #failed > 0 then
  pcall_('INCRBY', prefix .. 'stat:processed', #failed)
  pcall_('INCRBY', prefix .. 'stat:failed', #failed)
end
freed(prefix, released, ms)
if inline then
  inline.freed(released, us)
  inline.flush()
end
local left = call('HLEN', KEYS[1])
if left == 0 and not own then forget_process(prefix, proc) end
return {left, moved, reason, failed}
