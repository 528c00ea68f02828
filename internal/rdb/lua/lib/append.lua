-- append puts a payload at the tail of a queue that the caller does not configure as unique. It drops
-- no duplicate: the companions may be left from when the queue was unique. If they are in step with
-- the list, other programs keep the queue unique, and append keeps them in step.
--
-- DEFINES  append(prefix, queue, payload, ms): no result
-- NEEDS    base, records, unique
-- KEYS     writes queue:<q> and queues, and <q>:uniqueue and <q>:start_at where these are in
--          step with the queue
-- COST     3 commands; 8 where the queue has companions; O(1)

local function append(prefix, queue, payload, ms)
  local key = prefix .. 'queue:' .. queue
  pcall_('SADD', prefix .. 'queues', queue)
  if call('EXISTS', key .. ':uniqueue') == 1 and utyped(key) and instep(key, call('LLEN', key))
    and call('SADD', key .. ':uniqueue', payload) == 1 then
    call('RPUSH', key .. ':start_at', fmt('%.0f', math.floor(ms / 1000)))
  end
  call('RPUSH', key, payload)
end
