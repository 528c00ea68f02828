-- base is part of nearly every script: Redis's functions under short names, the clock, answers
-- to refused commands, job locks and fences.
--
-- In all scripts prefix is the namespace with a colon behind it, with which all keys begin, ms
-- and us are the server's time, proc names a worker process, and proc and token an in-flight
-- record. COST counts commands; n is the number of things that a call is about.
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

-- now returns the server's clock in milliseconds and in microseconds.
local function now()
  local t = call('TIME')
  local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  return math.floor(us / 1000), us
end

-- checked ends the script if a command was refused for anything but the type of its
-- key: a missing right, say, must not be taken for an answer.
local function checked(v)
  if type(v) == 'table' and v.err and not find(v.err, 'WRONGTYPE', 1, true) then
    error(redis.acl_check_cmd and v or v.err)
  end
  return v
end

local function refused(v) return type(v) == 'table' and v.err end

local function query(...) return checked(pcall_(...)) end

-- owner is the value of a job lock: it names the process and the record for
-- which the lock is held.
local function owner(proc, token) return 'resqued:' .. proc .. '#' .. token end

-- release removes a lock only if its value is still ours.
local function release(lock, value)
  if lock ~= '' and pcall_('GET', lock) == value then call('DEL', lock) end
end

-- setaside returns a number as large as all fences before it at least, and keeps n behind it
-- for the caller. A fence is a number larger than all before it. They begin at the time (us):
-- then this takes one command, nearly always. It returns false, with nothing changed, where
-- the key holds nothing from which fences could go on: no whole number, or one so large that
-- the next could not be distinguished from it.
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
