-- remove_lock releases a lock at an operator's request, if it is unchanged, and makes the queues that wait for
-- it look again.
--
-- KEYS[1]   the lock
-- ARGV[1]   prefix
-- ARGV[2]   kind, see lock_info
-- ARGV[3]   digest of the value that the operator saw, or '' for any
-- ARGV[4]   force: 1 also if its holder lives
-- RETURNS   {} there is no such lock; else {outcome, time (ms), its fields}: 'released', 'changed'
--           (it has another value), 'refused' (its holder lives, or that is unknown);
--           error NOPERM: nothing was done
-- COST      about 8 commands, and those of freed in blocked_queues; O(1). A loner marker costs as
--           much as waits in classlock.

local prefix, kind, digest, force = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local ms, us = now()
local l = look(prefix, kind, KEYS[1], ms, 0)
if not l then return {} end
if digest ~= '' and digest ~= l.digest then return {'changed', ms, fields(l)} end
if not force and l.state ~= 'orphan' and l.state ~= 'stale' then return {'refused', ms, fields(l)} end
local heldkey, list = prefix .. 'resqued:held:' .. l.proc, nil
if kind == 'timeout' and l.state == 'orphan' then
  list = query('HGET', heldkey, l.token)
end
call('DEL', KEYS[1])
if kind == 'locket' then
  freed(prefix, {KEYS[1]}, ms)
  linelocks(prefix).freed({KEYS[1]}, us)
end

-- A running job learns of it with its next beat, from its entry among the held locks.
if type(list) == 'string' then
  local rest = {}
  held_each(list, function(key, value)
    if key ~= KEYS[1] then rest[#rest + 1] = held_pack(key, value) end
  end)
  if #rest > 0 then
    call('HSET', heldkey, l.token, table.concat(rest))
  else
    call('HDEL', heldkey, l.token)
  end
end
return {'released', ms, fields(l)}
