-- delay keeps jobs until they are due, each in one of two places.
--
-- The keys of resque-scheduler are shown by Ruby's pages and moved by any scheduler:
-- delayed_queue_schedule, a sorted set of seconds, delayed:<second>, a list of items, and
-- timestamps:<item>, the set of lists with an item. An item is the payload with its queue:
-- {"class":"A","args":[1],"queue":"q"}. Schedulers rebuild the payload from class and args, so
-- only payloads without other keys may wait there.
--
-- resqued:delayed, known only to resqued, has times in ms. It holds all other payloads, and jobs
-- whose wait is so short that rounding up to a second would matter.
--
-- DEFINES  delayobstacle(prefix, queue, unique, due): what is in the way, or nil;
--          delay(prefix, queue, payload, unique, due, id): what became of the job, due (ms)
-- NEEDS    base, payload, payload_functions, records, unique
--          (in exchange the payload functions of exchange_fast)
-- KEYS     writes those above; where the time has come those of putback
-- COST     delayobstacle: 4 commands, 6 for a unique queue; delay: 2 to 4; O(log n)

local coarse = 5000 -- ms; a longer wait is rounded up to a second

-- itemof returns a job as resque-scheduler writes it, or nil.
local function itemof(queue, payload)
  local i = match(payload, '^{"class":"[^"\\]+","args":()%[')
  -- Names that need escapes or are not ASCII are not worth an encoder.
  if not i or queue == '' or find(queue, '[%c"\\\128-\255]') then return nil end
  if closing(payload, i) ~= #payload - 1 or byte(payload, #payload) ~= 125 then return nil end
  return sub(payload, 1, -2) .. ',"queue":"' .. queue .. '"}'
end

local function second(due) return fmt('%.0f', math.ceil(due / 1000)) end

-- delayobstacle says which key has a type that delay cannot write to, or returns nil.
local function delayobstacle(prefix, queue, unique, due)
  local key, own, schedule = prefix .. 'queue:' .. queue, prefix .. 'resqued:delayed', prefix .. 'delayed_queue_schedule'
  local list = prefix .. 'delayed:' .. second(due)
  local wrong = queueobstacle(key, unique) or notlist(list)
  for _, set in ipairs({own, schedule}) do
    if type(query('ZCARD', set)) ~= 'number' then wrong = wrong or set .. ' is not a sorted set' end
  end
  return wrong
end

-- delay keeps a job until due, in the server's ms, and never less. delayobstacle must have returned
-- nil. unique: the queue is unique. id, with a "#" and no space, must not be another job's. It
-- returns what happened to the job and, if it waits, when it is due (ms):
--   s  waits in the keys of resque-scheduler
--   w  waits in resqued:delayed
--   q  was due and has been pushed
--   d  was due and has been dropped: an equal job waits in its queue
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
  pcall_('SADD', prefix .. 'timestamps:' .. item, 'delayed:' .. at) -- only for finding an item
  call('ZADD', prefix .. 'delayed_queue_schedule', at, at)
  return 's', tonumber(at) * 1000
end
