-- append puts a payload at the tail of a queue that is not unique as far as the caller's
-- configuration says. It drops none for what the companions hold: they may be left of a queue
-- that was unique once. Where they match the queue other programs keep it unique; with one more
-- payload that is not a duplicate they match it still.
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
