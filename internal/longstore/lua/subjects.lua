-- subjects updates which subjects a recurring long job has. A new subject has waited since now, or since its
-- newest run was enqueued.
--
-- KEYS[1]   resqued:longjob:subjects:<class>
-- ARGV[1]   prefix
-- ARGV[2]   how long this is remembered (ms)
-- ARGV[3]   n, the number of new subjects
-- ARGV[4…]  kinds of the new ones, then kinds of those to forget
-- RETURNS   {time (ms), {what is noted of each new one, as in recur}};
--           error NOPERM: nothing was done
-- COST      2 commands, up to 4 per new subject, 1 per forgotten one; O(n)

local prefix, fresh, ms = ARGV[1], tonumber(ARGV[3]), (now())
local notes = {}
for i = 4, 3 + fresh do
  local kind = ARGV[i]
  local note = call('HGET', KEYS[1], kind)
  if not note then
    local newest = query('HGET', currentkey(prefix), kind)
    local created = type(newest) == 'string' and query('HGET', runkey(prefix, newest), 'created')
    note = type(created) == 'string' and match(created, '^%d+$') or fmt('-%.0f', ms)
    call('HSET', KEYS[1], kind, note)
  end
  notes[#notes + 1] = note
end
for i = 4 + fresh, #ARGV do call('HDEL', KEYS[1], ARGV[i]) end
call('PEXPIRE', KEYS[1], ARGV[2])
return {ms, notes}
