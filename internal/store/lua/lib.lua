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

-- quickname is lockname for what most payloads are: the class, then arguments without an
-- array among them and without white space but in strings, as Ruby and Go write them. It is
-- nil for all others, and for what is not short. Patterns look at one byte after the other,
-- so there is only one, and the rest is plain searches.
local function quickname(before, payload)
  if #payload > 400 then return nil end
  local class, args = match(payload, '^{"class":"([^"\\]+)","args":(%b[])}$')
  if not class or #args > 200 or find(args, '[', 2, true) or find(args, '\n', 1, true)
    or find(args, '\t', 1, true) or find(args, '\r', 1, true) then return nil end
  -- Outside of strings white space can only stand beside one of these.
  if find(args, ' ', 1, true) then
    if find(args, ', ', 1, true) or find(args, ': ', 1, true) or find(args, '[ ', 1, true) or find(args, '{ ', 1, true)
      or find(args, ' ,', 1, true) or find(args, ' :', 1, true) or find(args, ' ]', 1, true) or find(args, ' }', 1, true) then return nil end
  end
  return before .. class .. args
end
