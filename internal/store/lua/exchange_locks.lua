--
-- DEFINES  take(lock, value, seconds): whether the lock is ours now; fenced(lock): a fence, or false; died(queue,
--          payload): deaths, blame; give(queue, payload, lock, start, capped, deaths, blame): no result;
--          line.asking(), line.requests(): requests of suspects; line.behind(queue, payload, lock), line.separable(queue):
--          yes or no
-- NEEDS    all parts before it
-- COST     take: 1 command, up to 5 where the lock is held; give: 1 or 2; requests: 1 to 3 each; O(1)

local taken = {} -- locks known to be held

-- take gets a lock for a record of this process, or for some seconds.
local function take(lock, value, seconds)
  if taken[lock] then return false end
  taken[lock] = true
  if call('SET', lock, value, 'NX', 'EX', seconds or ttl) then return true end
  if held(prefix, lock) then return false end
  call('SET', lock, value, 'EX', seconds or ttl)
  return true
end

-- A suspect whose lock is held requests it. If others wait for the lock, too, it would never be free when the
-- suspect looks again. So a release keeps it for the suspect, for as long as a process that runs suspects may
-- take to come. The functions are defined when needed.
function line.requests()
  local r, seconds = {}, '40'

  local function keyof(lock) return prefix .. 'resqued:request:' .. sub(lock, #jobs + 1) end

  -- ask notes that a suspect wants a lock, if no other suspect does.
  function r.ask(lock, payload)
    local id, other = redis.sha1hex(payload), pcall_('GET', keyof(lock))
    if type(other) ~= 'string' or other == id then pcall_('SET', keyof(lock), id, 'EX', seconds) end
  end

  -- kept reports whether a suspect wants a lock, and keeps a free lock for it.
  function r.kept(lock)
    local id = pcall_('GET', keyof(lock))
    if type(id) ~= 'string' then return false end
    local value = pcall_('GET', lock)
    if type(value) == 'string' and sub(value, 1, 5) == 'line:' then return false end -- a line has the turn, see claim
    if take(lock, 'suspect:' .. id, seconds) then pcall_('DEL', keyof(lock)) end
    return true
  end

  -- claim takes a lock kept for a suspect.
  function r.claim(lock, payload, value)
    if pcall_('GET', lock) ~= 'suspect:' .. redis.sha1hex(payload) then return false end
    call('SET', lock, value, 'EX', ttl)
    return true
  end

  -- forget removes the request of a suspect that has its lock.
  function r.forget(lock, payload)
    if pcall_('GET', keyof(lock)) == redis.sha1hex(payload) then pcall_('DEL', keyof(lock)) end
  end

  return r
end

local bounced, more, budget = 0, 0, bound * 4
local capkey = prefix .. 'resqued:caps:' .. master

local anydeaths = not obstacles.calm and pcall_('EXISTS', deathkey) ~= 0

-- asking returns requests if a suspect waits, else false.
function line.asking()
  if line.asks == nil then
    line.asks = anydeaths and pcall_('EXISTS', prefix .. 'resqued:suspects') == 1 and line.requests()
  end
  return line.asks
end

-- died is dead.of, without cost while nothing dies.
local function died(queue, payload)
  if not anydeaths then return 0, 0 end
  return dead.of(prefix, queue, payload)
end

-- behind reports whether a job that may have killed its process must wait in the line for its lock: the lock is
-- held, or an equal job is quarantined. Equal jobs share the blame, and the first that succeeds clears the
-- others.
function line.behind(queue, payload, lock)
  if taken[lock] or pcall_('EXISTS', lock) == 1 and held(prefix, lock) then return true end
  local elements = pcall_('LRANGE', apartkey(prefix, queue), '0', '99')
  for _, element in ipairs(elements.err and {} or elements) do
    if suspect(element) == payload then return true end
  end
  return false
end

-- separable reports whether a queue's suspects can be quarantined.
function line.separable(queue)
  local set = prefix .. 'resqued:suspects'
  return not anydeaths or len(apartkey(prefix, queue)) and type(pcall_('SCARD', set)) == 'number'
end

-- fenced reserves fencing tokens for a lock just taken, or releases the lock.
local function fenced(lock)
  if fence == nil then fence = setaside(fencekey, us, nwant) end
  if not fence then call('DEL', lock) end
  return fence
end

local function give(queue, payload, lock, start, capped, deaths, blame)
  local want, cap, number = asked[w], capped and master or '', '0'
  if lock ~= '' then
    fence = fence + 1
    number = fmt('%d', fence)
  end
  local record = fmt('3 %d %d %d %d %s %d %d %d %s\n', #queue, #want[2], #lock, #cap, number, deaths, blame, ms, start)
    .. queue .. want[2] .. lock .. cap .. payload
  bytes, w = bytes + #payload, w + 1
  call('HSET', inflight, want[1], record)
  reply[#reply + 1] = want[1]
  reply[#reply + 1] = record
  if capped and refused(pcall_('HINCRBY', capkey, queue, 1)) then pcall_('HSET', capkey, queue, 1) end
end
