-- rights asks whether the server's user may run a command before anything is taken from
-- where it stands: what a script has done when a later command is refused stays done, and
-- the job would be nowhere. What is only kept on the side is tried with pcall instead.
-- No server before Redis 7 can be asked. A user who may give himself rights has them all.
--
-- DEFINES  may(command, key): yes or no; nil where nothing is to be asked;
--          lacks(key, command, …): an error text or nil; need(key, command, …),
--          needlist(key): end the script with NOPERM where a right is missing
-- NEEDS    none
-- KEYS     none
-- COST     one question to the server; where that is answered with no, one per command

-- A function costs something each time that it is defined: these are defined for a user who
-- lacks something.
local may
local lacks, need, needlist
do
  local asking = redis.acl_check_cmd
  local function nothing() end
  lacks, need, needlist = nothing, nothing, nothing
  local known, all = true, true
  if asking then known, all = pcall(asking, 'ACL', 'SETUSER', 'x') end
  if not (known and all) then
    may = function(...)
      local known, yes = pcall(asking, ...) -- it fails where the server has no such command
      return known and yes
    end

    -- lacks returns what the user may not do with a key, or nil.
    lacks = function(key, ...)
      for i = 1, select('#', ...) do
        local command = select(i, ...)
        if not may(command, key) then
          return 'NOPERM the user may not run ' .. command .. ' on ' .. key .. '; see the rights in docs/redis-keys.md'
        end
      end
    end

    -- need ends the script unless the user may do all that with a key.
    need = function(key, ...)
      local what = lacks(key, ...)
      if what then error(redis.error_reply(what)) end
    end

    -- needlist is need for what puts jobs into a list and takes them out.
    needlist = function(key) need(key, 'LLEN', 'LTRIM', 'LPOP', 'LPUSH', 'RPUSH', 'LINDEX', 'LRANGE', 'LSET', 'LREM') end
  end
end
