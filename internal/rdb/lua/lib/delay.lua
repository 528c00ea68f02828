-- delay keeps jobs until their time, each in one of two places.
--
-- In the keys of resque-scheduler, where Ruby's pages show it and any scheduler may move
-- it: delayed_queue_schedule, a sorted set of seconds, delayed:<second>, a list of items,
-- and timestamps:<item>, the set of the lists that hold an item. An item is the payload
-- with its queue: {"class":"A","args":[1],"queue":"q"}. They make the payload of it again
-- from class and args, so that only one which holds nothing else may wait there.
--
-- In resqued:delayed, which only we know, where times are milliseconds: all other
-- payloads, and jobs that wait for so short a time that a second more would count.
--
-- DEFINES  delayobstacle(prefix, queue, unique, due): what is in the way, or nil;
--          delay(prefix, queue, payload, unique, due, id): what became of the job, due (ms)
-- NEEDS    base, payload, payload_functions, records, unique
--          (in exchange the payload functions of exchange_fast)
-- KEYS     writes those above; where the time has come those of putback
-- COST     delayobstacle: 4 commands, 6 for a unique queue; delay: 2 to 4; O(log n)

local coarse = 5000 -- ms; who waits so long waits for a whole second

-- itemof returns a job as resque-scheduler would write it, or nil.
local function itemof(queue, payload)
  local i = match(payload, '^{"class":"[^"\\]+","args":()%[')
  -- A name that would need escapes, or is not ASCII, is not worth an encoder.
  if not i or queue == '' or find(queue, '[%c"\\\128-\255]') then return nil end
  if closing(payload, i) ~= #payload - 1 or byte(payload, #payload) ~= 125 then return nil end
  return sub(payload, 1, -2) .. ',"queue":"' .. queue .. '"}'
end

local function second(due) return fmt('%.0f', math.ceil(due / 1000)) end

-- delayobstacle returns which key has a type that delay cannot write to, or nil.
local function delayobstacle(prefix, queue, unique, due)
  local key, own, schedule = prefix .. 'queue:' .. queue, prefix .. 'resqued:delayed', prefix .. 'delayed_queue_schedule'
  local list = prefix .. 'delayed:' .. second(due)
  if not len(key) then return key .. ' is not a list' end
  if unique and not utyped(key) then return key .. ':uniqueue is not a set or ' .. key .. ':start_at not a list' end
  if not len(list) then return list .. ' is not a list' end
  for _, set in ipairs({own, schedule}) do
    if type(query('ZCARD', set)) ~= 'number' then return set .. ' is not a sorted set' end
  end
end

-- delay has a job wait for its queue until due, a time of the server's in ms, and never
-- less. delayobstacle has found nothing. unique says that the queue is unique; id, which
-- holds a "#" and no space, is no other job's. It returns what became of the job, and of
-- one that waits when it is due (ms):
--   s  waits in the keys of resque-scheduler
--   w  waits in resqued:delayed
--   q  was pushed, its time has come already
--   d  was dropped then, an equal one waits in its queue
local function delay(prefix, queue, payload, unique, due, id)
  local ms = now()
  if due <= ms then
    local start = unique and fmt('%.0f', math.floor(ms / 1000)) or '-'
    return putback(prefix, queue, payload, start, false) and 'q' or 'd'
  end
  local item = (due % 1000 == 0 or due - ms >= coarse) and itemof(queue, payload)
  if not item then
    call('ZADD', prefix .. 'resqued:delayed', fmt('%.0f', due), delayed(id, queue, payload, unique))
    return 'w', due
  end
  local at = second(due)
  call('RPUSH', prefix .. 'delayed:' .. at, item)
  pcall_('SADD', prefix .. 'timestamps:' .. item, 'delayed:' .. at) -- only for who looks for the item
  call('ZADD', prefix .. 'delayed_queue_schedule', at, at)
  return 's', tonumber(at) * 1000
end
