-- rights ends the script before its first command if the user may not run all of its commands. Redis does
-- not roll back, so a later refusal could lose the job. NewScript inserts the commands. Servers before
-- Redis 7 cannot be asked. A user with the right to ACL SETUSER passes.
--
-- DEFINES  nothing
-- NEEDS    none
-- KEYS     KEYS[1] stands for all: a user has one pattern for a namespace
-- COST     one question to the server; where that is answered with no, one per command

do
  local asking, known, all = redis.acl_check_cmd, true, true
  if asking then known, all = pcall(asking, 'ACL', 'SETUSER', 'x') end
  if not (known and all) then
    for _, command in ipairs({'COMMANDS'}) do
      -- Redis 7.0 reads past the last word of commands with a key count, and may crash; so there are more words.
      local known, may = pcall(asking, command, KEYS[1], KEYS[1], KEYS[1])
      if not (known and may) then
        return redis.error_reply('NOPERM the user may not run ' .. command .. ' on ' .. KEYS[1] .. '; see the rights in docs/redis-keys.md')
      end
    end
  end
end
