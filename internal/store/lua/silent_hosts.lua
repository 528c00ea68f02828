-- silent_hosts returns hosts that give no sign of life, though their leases have not ended, and gives the
-- caller the turn to find out whether they are dead. It returns none while a silence of all processes forbids
-- judging (see grace).
--
-- KEYS[1]   resqued:procs
-- ARGV[1]   prefix
-- ARGV[2]   lease (ms)
-- ARGV[3]   beat interval (ms)
-- ARGV[4]   place of the caller, which is skipped
-- ARGV[5]   silence (ms); 0 = two and a half beats of the silent
-- ARGV[6]   how long a master's entry lives (ms)
-- ARGV[7]   how many hosts at most
-- ARGV[8]   how long the turn lasts (ms)
-- ARGV[9]   name of the turn
-- RETURNS   {time (ms), {place, last sign of life (ms), processes, boot id or '', address or ''}, …}
-- COST      4 commands, nearly always. If processes are silent, 2 per host, and those of signs in hosts; 100 processes
--           are checked, different ones each time; O(n)

local prefix, lease, every = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local after, ttl, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local ms, us = now()
local reply = {ms}
if unjudged(prefix, ms, lease, every) then return reply end
local _, _, shortest, longest = paced(prefix, lease, every)
-- Leases end later if their process has beaten since, except shorter ones, which signs distinguishes.
local from, to = '(' .. fmt('%.0f', ms), fmt('%.0f', ms + longest - (after > 0 and after or 2.5 * shortest))
local n = call('ZCOUNT', KEYS[1], from, to)
if n == 0 then return reply end
local skip = us % math.max(1, math.ceil(n / 100)) * 100
local seen = {[ARGV[4]] = true}
for _, proc in ipairs(call('ZRANGEBYSCORE', KEYS[1], from, to, 'LIMIT', skip, 100)) do
  local place = match(proc, '^(.*):[^:]*:[^:]*$')
  if place and not seen[place] and #reply <= most then
    seen[place] = true
    local turn = prefix .. 'resqued:asked:' .. place
    if call('EXISTS', turn) == 0 then
      local h = signs(prefix, place, ms, after, ttl)
      if h and h.silent then
        call('PERSIST', KEYS[1]) -- a full server accepts this write, and then the other
        call('SET', turn, ARGV[9], 'PX', ARGV[8])
        reply[#reply + 1] = {place, h.last, #h.procs, h.boot, h.address}
      end
    end
  end
end
return reply
