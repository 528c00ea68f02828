-- base is part of nearly every script: short names for Redis's functions, the clock, checks for
-- rejected commands, job locks and fencing tokens.
--
-- In all scripts, prefix is the namespace and a colon, ms and us are the server's time, proc names
-- a worker process, and proc and token name an in-flight record. COST counts commands; n is the
-- number of items in a call.
--
-- DEFINES  call, pcall_, find, byte, sub, match, fmt: Redis's and Lua's functions;
--          now(): the server's clock (ms), the same (us);
--          query(command, …): its reply; ends the script unless that is an answer or a wrong
--          type; checked(reply): the same for a reply; refused(reply): the error in it or nil;
--          owner(proc, token): value of a job lock; release(lock, value): no result;
--          setaside(key, us, n): the fence before the next n, or false
-- NEEDS    none
-- KEYS     reads and removes the lock, writes the key of fences that it is given
-- COST     now, query: 1 command; release: 1 or 2; setaside: 1, seldom 2; O(1)

local call, pcall_, find, byte, sub, match, fmt =
  redis.call, redis.pcall, string.find, string.byte, string.sub, string.match, string.format

local function now()
  local t = call('TIME')
  local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  return math.floor(us / 1000), us
end

-- checked ends the script if a command was rejected for anything but its key's type. A missing right,
-- say, must not pass for an answer.
local function checked(v)
  if type(v) == 'table' and v.err and not find(v.err, 'WRONGTYPE', 1, true) then
    error(redis.acl_check_cmd and v or v.err)
  end
  return v
end

local function refused(v) return type(v) == 'table' and v.err end

local function query(...) return checked(pcall_(...)) end

-- owner is the value of a job lock, which names its process and record.
local function owner(proc, token) return 'resqued:' .. proc .. '#' .. token end

-- release removes a lock only if its value is still ours.
local function release(lock, value)
  if lock ~= '' and pcall_('GET', lock) == value then call('DEL', lock) end
end

-- setaside reserves n fencing tokens and returns the last one before them. Tokens only grow. They
-- start at the time (us), so that nearly always one command is enough. It returns false, and
-- changes nothing, if the key does not hold a whole number below 9e15: above, a double cannot
-- distinguish it from the next.
local function setaside(key, us, n)
  local last, fence = query('GETSET', key, fmt('%d', us + n)), 0
  if last then
    fence = nil
    if type(last) == 'string' and match(last, '^-?%d+$') then fence = tonumber(last) end
    if not fence or fence > 9e15 then
      if type(last) == 'string' then call('SET', key, last) end
      return false
    end
  end
  if fence < us then fence = us end
  if fence > us then call('SET', key, fmt('%d', fence + n)) end
  return fence
end
