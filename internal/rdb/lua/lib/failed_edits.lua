-- failed_edits is what the scripts share that edit failure records. Each edit is six arguments:
-- the index of the record as it was read, the record, what takes its place ('' nothing), queue
-- ('' to push nothing), payload, whether the queue is unique (1|0).
--
-- DEFINES  siftkeys(prefix, name): resqued:sifting, a hash: list → "<token> <until, ms>" of the
--          failed_edit_bulk that is under way, and resqued:passed:<list>, see there;
--          unfit(prefix, key): an error to return, or nil;
--          placed(from, part, first): edits → index in a part of the list, counted from 1;
--          pushes(prefix, i, start): what became of the push of an edit: r, u or x
-- NEEDS    base, records, unique, append
-- KEYS     unfit reads the list and queues; pushes writes queue:<q> and its companions
-- COST     unfit: 2 commands; placed: none, O(edits + records); pushes: 1 and those of append or
--          putback

-- siftkeys returns the keys of the failed_edit_bulk of a list.
local function siftkeys(prefix, name) return prefix .. 'resqued:sifting', prefix .. 'resqued:passed:' .. name end

-- unfit returns an error if keys are not what an edit needs, and ends the script unless it may
-- do all that one takes.
local function unfit(prefix, key)
  if not len(key) then return redis.error_reply('RESQUEDTYPE ' .. key .. ' is not a list; move it away') end
  if type(pcall_('SCARD', prefix .. 'queues')) ~= 'number' then
    return redis.error_reply('RESQUEDTYPE ' .. prefix .. 'queues is not a set; move it away')
  end
end

-- placed finds the records of the edits, which begin at an argument, among those that stand
-- in a part of the list now: edits → index in that part, counted from 1. first is the index
-- in the list of the first of these. Of equal records each is found once.
local function placed(from, part, first)
  local places, where = {}, {}
  for i = from, #ARGV, 6 do where[ARGV[i + 1]] = where[ARGV[i + 1]] or {} end
  for i, record in ipairs(part) do
    local list = where[record]
    if list then list[#list + 1] = i end
  end
  -- Those that stand where they were read go first.
  for i = from, #ARGV, 6 do
    local at = tonumber(ARGV[i]) - first + 1
    if part[at] == ARGV[i + 1] then
      places[i] = at
      for n, other in ipairs(where[ARGV[i + 1]]) do
        if other == at then table.remove(where[ARGV[i + 1]], n) break end
      end
    end
  end
  for i = from, #ARGV, 6 do
    if not places[i] then places[i] = table.remove(where[ARGV[i + 1]]) end
  end
  return places
end

-- pushes does what an edit says of a queue, and returns its letter: r (done), u (an equal
-- job waits, nothing was pushed), x (the queue's key holds something else than it should:
-- then the record stays).
local function pushes(prefix, i, start)
  local queue = ARGV[i + 3]
  if queue == '' then return 'r' end
  local target = prefix .. 'queue:' .. queue
  -- Such a key is one that a unique queue has beside its list.
  if find(queue, ':start_at$') or find(queue, ':uniqueue$') then return 'x' end
  local unique = ARGV[i + 5] == '1'
  if not len(target) or unique and not utyped(target) then return 'x' end
  if unique then return putback(prefix, queue, ARGV[i + 4], start, false) and 'r' or 'u' end
  append(prefix, queue, ARGV[i + 4], now())
  return 'r'
end
