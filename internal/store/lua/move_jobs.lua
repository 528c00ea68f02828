-- move_jobs moves payloads, compared byte by byte, from a part of a queue or of one of its lines to another queue's
-- tail or head, in their order, with unique queues' companions, death counts and loner markers.
--
-- KEYS[1]   queue:<from>, or the line
-- ARGV[1]   prefix
-- ARGV[2]   from
-- ARGV[3]   to, another queue
-- ARGV[4]   index of the first payload read
-- ARGV[5]   n, the number of payloads read from there
-- ARGV[6]   flags: u the other queue is unique, h to its head
-- ARGV[7]   '' or l and the name of the line, t and the place of a tenant
-- ARGV[8…]  per payload to move: itself, the key of its loner marker or ''
-- RETURNS   a text of one digit per payload: 1 moved, 0 no longer there, 2 an equal one waits in
--           the other, unique queue, so this one stays;
--           error RESQUEDTYPE or NOPERM: nothing was done
-- COST      about 12 commands, up to 5 per moved payload, and those of upush in unique if the other
--           queue is unique; O(n), plus the way to them from the nearer end

local prefix, from, to = ARGV[1], ARGV[2], ARGV[3]
local unique, head = find(ARGV[6], 'u', 1, true), find(ARGV[6], 'h', 1, true)
local target, queues = prefix .. 'queue:' .. to, prefix .. 'queues'
local t, wrong = taking(prefix, from, ARGV[7], tonumber(ARGV[4]), tonumber(ARGV[5]), 8, 2, head) -- the last one is pushed to the head first
wrong = wrong or queueobstacle(target, unique) or notset(queues)
if wrong then return inway(wrong) end
local ms, done = now(), {}
for i = 8, #ARGV, 2 do done[(i - 6) / 2] = '0' end

forget_seen(prefix, from) -- also the first write, after which a full server accepts the rest
forget_seen(prefix, to)
call('SADD', queues, to)
for _, f in ipairs(t.found) do
  local payload, pushed = f.payload, true
  if unique then
    pushed = upush(target, payload, f.start or fmt('%.0f', math.floor(ms / 1000)), head)
  else
    push(target, payload, head)
  end
  done[f.nth] = pushed and '1' or '2'
  if pushed then
    t.take(f)
    if t.counted then dead.copy(prefix, from, to, payload, ms) end
    t.forget(f)
    local marker = ARGV[7 + 2 * f.nth]
    if marker ~= '' then remark(marker, from, to, payload) end
  end
end
t.finish()
return table.concat(done)
