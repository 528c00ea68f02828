-- failed_edits is shared by the scripts that edit failure records. An edit is six arguments: the
-- record's index when it was read, the record, its replacement ('' = none), queue ('' = push nothing),
-- payload, whether the queue is unique (1|0).
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

local function siftkeys(prefix, name) return prefix .. 'resqued:sifting', prefix .. 'resqued:passed:' .. name end

-- unfit returns an error if a key has the wrong type, and ends the script if a right is missing.
local function unfit(prefix, key) return inway(notlist(key) or notset(prefix .. 'queues')) end

-- placed finds the records of the edits from argument from on in a current part of the list: edits →
-- index in the part, from 1. first is the part's position in the list. Of equal records, each is
-- found once.
local function placed(from, part, first)
  local places, where = {}, {}
  for i = from, #ARGV, 6 do where[ARGV[i + 1]] = where[ARGV[i + 1]] or {} end
  for i, record in ipairs(part) do
    local list = where[record]
    if list then list[#list + 1] = i end
  end
  -- Records that have not moved go first.
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

-- pushes makes an edit's push and returns its letter: r (done), u (an equal job waits, nothing was
-- pushed), x (a key has the wrong type: the record stays).
local function pushes(prefix, i, start)
  local queue = ARGV[i + 3]
  if queue == '' then return 'r' end
  local target = prefix .. 'queue:' .. queue
  -- Such a key belongs to another, unique queue.
  if find(queue, ':start_at$') or find(queue, ':uniqueue$') then return 'x' end
  local unique = ARGV[i + 5] == '1'
  if queueobstacle(target, unique) then return 'x' end
  if unique then return putback(prefix, queue, ARGV[i + 4], start, false) and 'r' or 'u' end
  append(prefix, queue, ARGV[i + 4], now())
  return 'r'
end
