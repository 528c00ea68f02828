-- unique_stub takes the place of unique in an exchange that has to do with no unique queue: to
-- define what is not needed would cost such a call more than a job does.
--
-- DEFINES  putback, needcompanions, lackscompanions as unique; utyped, instep, tend,
--          forget_member, rotated, healing: nil
-- NEEDS    base
-- KEYS     putback writes queue:<q> and queues
-- COST     putback: 2 commands; O(1)

local utyped, instep, tend, forget_member, rotated, healing
local function needcompanions() end
local lackscompanions = needcompanions

-- putback puts the payload of a record back into its queue.
local function putback(prefix, queue, payload, _, head)
  pcall_('SADD', prefix .. 'queues', queue) -- it may have been removed meanwhile
  call(head and 'LPUSH' or 'RPUSH', prefix .. 'queue:' .. queue, payload)
  return true
end
