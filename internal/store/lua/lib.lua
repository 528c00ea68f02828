-- lib is put in front of every script of this package: what all of them need.

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
-- the next would not be told from it.
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
