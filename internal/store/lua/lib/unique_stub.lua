-- plain stands in for unique in a call that has to do with no unique queue: to define
-- what is not needed would cost such a call more than a job does.

local utyped, instep, tend, forget_member, rotated, healing
local function needcompanions() end
local lackscompanions = needcompanions

-- putback puts the payload of a record back into its queue.
local function putback(prefix, queue, payload, _, head)
  pcall_('SADD', prefix .. 'queues', queue) -- it may have been removed meanwhile
  call(head and 'LPUSH' or 'RPUSH', prefix .. 'queue:' .. queue, payload)
  return true
end
